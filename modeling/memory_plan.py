"""How much memory a training run will take, known before anything is loaded.

Weights, gradients and optimizer states follow from the parameters. What a forward pass keeps for the backward
pass is counted, not estimated: the real model runs on the longest row with tensors that have shapes and no
memory (PyTorch's FakeTensorMode), and every tensor kept is added up.
"""

from dataclasses import dataclass
from typing import Any

import torch
from peft import get_peft_model
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers import AttentionInterface, AutoModelForCausalLM, PretrainedConfig
from transformers.integrations.sdpa_attention import sdpa_attention_forward

# States per trained weight, in units of the weight: Adam keeps two moments.
OPTIMIZER_STATES = {"sgd": 0.0, "adafactor": 0.0, "adamw_8bit": 0.5, "paged_adamw_8bit": 0.5}
GIB = 2**30
# Rows of different lengths get a mask over all pairs of positions; one row alone is causal without any.
WITHOUT_MASK = "sdpa_without_mask"
AttentionInterface.register(WITHOUT_MASK, sdpa_attention_forward)
QUANTIZED_AWAY = 1 - (4 + 0.5) / 16  # of a bf16 weight in 4 bits, with a scale of 32 bits for 64 of them
SLACK = 1.1  # blocks that the allocator has freed and keeps; measured 0 to 15 % on CPUs


@dataclass(frozen=True)
class MemoryPlan:
    """Bytes of one process at its peak. `buckets`: gradients on their way to other processes (DDP); `frozen`:
    another model's; `runtime`: what it holds already."""

    num_parameters: int
    num_trainable: int
    weights: float
    gradients: float
    optimizer: float
    activations: float
    head: float
    buckets: float = 0.0
    frozen: float = 0.0
    runtime: float = 0.0
    num_shards: int = 1

    @property
    def total(self) -> float:
        return sum(self.parts.values())

    @property
    def parts(self) -> dict[str, float]:
        """What makes the total, by name. Gradients take the place of activations as the backward pass goes:
        the larger of them counts."""
        larger = "activations" if self.activations >= self.gradients else "gradients"
        counted = ("weights", "optimizer", larger, "head", "buckets", "frozen", "runtime")
        parts = {name: getattr(self, name) for name in counted}
        return parts | {"slack": sum(parts.values()) * (SLACK - 1)}

    def __str__(self) -> str:
        shown = ", ".join(f"{name} {part / GIB:.2f}" for name, part in self.parts.items() if part)
        return (
            f"{self.num_trainable:,} of {self.num_parameters:,} parameters train; memory of a process at its "
            f"peak: {self.total / GIB:.2f} GiB ({shown})"
        )


def plan_memory(
    config: PretrainedConfig,
    dtype: torch.dtype,
    batch: tuple[int, int],
    optim: str = "adamw_torch",
    peft_config: Any = None,
    gradient_checkpointing: bool = False,
    autocast: bool = False,
    num_shards: int = 1,
    num_replicas: int = 1,
    frozen: float = 0.0,
    runtime: float = 0.0,
    load_in_4bit: bool = False,
) -> MemoryPlan:
    """`batch`: (rows, tokens of the longest row) of one forward pass. `num_shards`: processes among which
    weights, gradients and states are split (FSDP2, ZeRO-3), two layers' weights whole at a time; with
    `autocast` they keep what trains in float32 and compute in bfloat16. `num_replicas`: processes that hold
    all of it each (DDP). `load_in_4bit`: QLoRA's base."""
    held = 1.0  # bytes of a trained weight, in units of `dtype`
    if num_shards > 1 and autocast:
        held, dtype, autocast = torch.float32.itemsize / 2, torch.bfloat16, False
    # Without memory a mixture's grouped matrix product knows bfloat16 alone.
    is_mixture = getattr(config.get_text_config(), "num_experts", None)
    counted = torch.bfloat16 if is_mixture else dtype
    scale = dtype.itemsize / counted.itemsize
    model, trunk, saved = _without_memory(config, counted, batch, peft_config, load_in_4bit)
    with FakeTensorMode(allow_non_fake_inputs=True):
        _put_on_cpu(model)
        parameters = list(model.parameters())
        kept = _kept_for_backward(trunk, parameters, batch, autocast) * (1 if autocast else scale)
    trainable = [weight for weight in parameters if weight.requires_grad]
    text = config.get_text_config()
    layer = kept / text.num_hidden_layers
    if gradient_checkpointing:  # the inputs of all layers, and the half-precision copies that autocast keeps
        inputs = batch[0] * batch[1] * text.hidden_size * dtype.itemsize * text.num_hidden_layers
        kept = layer + inputs + (2 * sum(weight.numel() for weight in trainable) if autocast else 0)
    trained = sum(weight.nbytes for weight in trainable) * scale
    gradients = trained * held
    weights = (sum(weight.nbytes for weight in parameters) - saved) * scale + trained * (held - 1)
    gathered = 0.0
    if num_shards > 1:
        gathered = 2 * scale * sum(weight.nbytes for weight in trunk.parameters()) / text.num_hidden_layers
    head = model.get_output_embeddings().weight
    return MemoryPlan(
        num_parameters=sum(weight.numel() for weight in parameters),
        num_trainable=sum(weight.numel() for weight in trainable),
        weights=weights / num_shards + gathered,
        gradients=gradients / num_shards,
        optimizer=gradients * OPTIMIZER_STATES.get(optim, 2.0) / num_shards,
        activations=kept + 2 * layer,  # what the backward pass of a layer makes beside what it reads
        # The head's gradient is added up in float32 (TRL's fused head); logits are never whole.
        head=head.numel() * 4.0 if head.requires_grad else 0.0,
        buckets=gradients if num_replicas > 1 else 0.0,
        frozen=frozen,
        runtime=runtime,
        num_shards=num_shards,
    )


def num_bytes(config: PretrainedConfig, dtype: str = "auto") -> float:
    """Of a model's weights; `auto`: as they are stored."""
    held = (config.dtype or torch.float32) if dtype == "auto" else getattr(torch, dtype)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=held)
    return float(sum(weight.nbytes for weight in model.parameters()))


def _without_memory(
    config: PretrainedConfig,
    dtype: torch.dtype,
    batch: tuple[int, int],
    peft_config: Any,
    load_in_4bit: bool,
) -> tuple[Any, Any, float]:
    """(the model, its trunk, bytes that 4 bits save) with shapes alone, its adapter put on."""
    attention = "sdpa" if batch[0] > 1 else WITHOUT_MASK
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation=attention)
        trunk = model.base_model
        saved = QUANTIZED_AWAY * bytes_of_linear_layers(trunk) if load_in_4bit else 0.0
        if peft_config is not None:
            get_peft_model(model, peft_config)
    return model, trunk, saved


def bytes_of_linear_layers(trunk: torch.nn.Module) -> int:
    """What 4-bit loading shrinks: linear layers; a mixture's experts are none (3-D parameters)."""
    layers = (module for module in trunk.modules() if isinstance(module, torch.nn.Linear))
    return sum(layer.weight.nbytes for layer in layers)


def _put_on_cpu(model: torch.nn.Module) -> None:
    """Weights without memory, but of a real device: autocast does nothing on the meta device."""
    fakes: dict[int, torch.nn.Parameter] = {}  # tied weights stay one
    for module in model.modules():
        for name, weight in module._parameters.items():
            if weight is not None and id(weight) not in fakes:
                empty = torch.empty(weight.shape, dtype=weight.dtype)
                fakes[id(weight)] = torch.nn.Parameter(empty, requires_grad=weight.requires_grad)
            module._parameters[name] = fakes[id(weight)] if weight is not None else None
        for name, buffer in module._buffers.items():
            if buffer is not None:
                module._buffers[name] = torch.empty(buffer.shape, dtype=buffer.dtype)


def _kept_for_backward(
    trunk: torch.nn.Module, parameters: list[torch.nn.Parameter], batch: tuple[int, int], autocast: bool
) -> float:
    """Bytes that a forward pass on these many tokens keeps, weights aside; copies of them in half precision
    count."""
    weights = {weight.untyped_storage()._cdata for weight in parameters}
    kept: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in weights:
            kept[storage._cdata] = storage.nbytes()
        return tensor

    trunk.train()
    hooks = torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor)
    with hooks, torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        output = trunk(input_ids=torch.zeros(*batch, dtype=torch.long), use_cache=False)
        del output
    return float(sum(kept.values()))
