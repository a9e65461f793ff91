"""TRL's GRPOTrainer with a group's prompt computed once: in the update, and in generation without vLLM.

A group is G summaries of one compaction. TRL shuffles a generation batch row by row and computes each row
with its prompt; here the rows of a group stay together, and `modeling/shared_prompt.py` computes them. The
loss, the advantages and everything else are TRL's.
"""

from typing import Any

import torch
from trl import GRPOTrainer
from trl.trainer.utils import split_tensor_dict

from modeling.sampling import EpochOrder
from modeling.shared_generation import share_prefill
from modeling.shared_prompt import group_logprobs, why_not_shared


class SharedPromptTrainer(EpochOrder, GRPOTrainer):
    """Datasets have the column `prompt`, token ids; the others go to the reward function."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        trainer: Any = self
        self.why_not_shared = why_not_shared(trainer.model)
        if not self.use_vllm:
            share_prefill(trainer.model)

    def _tokenize_prompts(self, prompts: list[list[int]]) -> tuple[list[list[int]], None, dict[str, Any]]:
        """TRL would render messages here; ours were rendered as a server does, and checked."""
        return prompts, None, {}

    def _prepare_inputs(self, generation_batch: Any) -> Any:
        """As in TRL, without the shuffle of rows; the sampler has shuffled the groups."""
        trainer: Any = self
        if not trainer.model.training:
            return super()._prepare_inputs(generation_batch)
        steps = trainer.args.steps_per_generation
        if self._step % (steps * self.num_iterations) == 0 or self._buffered_inputs is None:
            batch = self._generate_and_score_completions(generation_batch)
            trainer._buffered_inputs = split_tensor_dict(batch, steps)
        return trainer._buffered_inputs[self._step % steps]

    def _get_per_token_logps_and_entropies(
        self,
        model: Any,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        logits_to_keep: int,
        *args: Any,
        compute_aux_loss: bool = False,
        **options: Any,
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
        """(B, c) log-probabilities and entropies. With a mixture's auxiliary loss, which counts every row's
        tokens, each row is computed by itself, as in TRL."""
        if compute_aux_loss or self.why_not_shared:
            options |= {"compute_aux_loss": compute_aux_loss}
            return super()._get_per_token_logps_and_entropies(
                model, input_ids, attention_mask, logits_to_keep, *args, **options
            )
        width = input_ids.shape[1] - logits_to_keep
        parts = []
        for rows in groups_of_equal(input_ids[:, :width]):
            prompt = input_ids[rows[0], :width][attention_mask[rows[0], :width] == 1]
            with self.accelerator.autocast():
                parts.append(
                    group_logprobs(model, prompt, input_ids[rows, width:], attention_mask[rows, width:])
                )
        logprobs, entropies = zip(*parts, strict=True)
        has_entropies = entropies[0] is not None
        return torch.cat(logprobs), torch.cat(entropies) if has_entropies else None, None


def groups_of_equal(prompts: torch.Tensor) -> list[list[int]]:
    """Runs of rows with one prompt, (B, P), in order."""
    groups: list[list[int]] = []
    for number, row in enumerate(prompts):
        if groups and torch.equal(row, prompts[groups[-1][0]]):
            groups[-1].append(number)
        else:
            groups.append([number])
    return groups
