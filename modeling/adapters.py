"""LoRA that reaches what it was asked to reach.

Since transformers 5 a mixture's experts are 3-D parameters, which only `target_parameters` names; a LoRA on
modules alone trains attention and leaves the experts as they were, without a word.
"""

from typing import Any

from peft.tuners.lora.layer import ParamWrapper
from torch import nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from modeling.sharding import whole


def lora_parameters_of(model: nn.Module, target: str) -> list[Any]:
    """The B matrices of the adapters on a target parameter such as `mlp.experts.gate_up_proj`."""
    owner, _, leaf = target.rpartition(".")
    return [
        wrapper.lora_B[adapter].weight
        for name, wrapper in model.named_modules()
        if isinstance(wrapper, ParamWrapper) and wrapper.parameter_name == leaf and owner in name
        for adapter in wrapper.active_adapters
    ]


def check_targets_trainable(model: nn.Module, targets: list[str]) -> None:
    """Raises ValueError for a target parameter that got no adapter."""
    missing = [target for target in targets if not lora_parameters_of(model, target)]
    if missing:
        raise ValueError(
            f"--lora_target_parameters {', '.join(missing)} match nothing in this model; a mixture's "
            "experts are named like mlp.experts.gate_up_proj"
        )


def check_saved_modules(model: nn.Module, names: list[str]) -> None:
    """Raises ValueError for a module that was to be trained whole, and is not there: PEFT says nothing."""
    ends = {name.rpartition(".")[2] for name, _ in model.named_modules()}
    if unknown := sorted(set(names) - ends):
        raise ValueError(f"--lora_modules_to_save {', '.join(unknown)} match nothing in this model")


class CheckTargetsLearn(TrainerCallback):
    """Stops at the first optimizer step if a requested target gets no gradient."""

    def __init__(self, targets: list[str]) -> None:
        self.targets = targets

    def on_pre_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
    ) -> None:
        """Only B is looked at: it starts at zero, so that A has no gradient yet."""
        model = kwargs["model"]
        assert isinstance(model, nn.Module)
        for target in self.targets:
            gradients = [p.grad for p in lora_parameters_of(model, target) if p.grad is not None]
            if not any(whole(gradient.ne(0).any()).item() for gradient in gradients):
                raise ValueError(
                    f"--lora_target_parameters {target} get no gradient in step {state.global_step}"
                )
        # Once is enough, and gradients are not looked at again.
        self.targets = []
