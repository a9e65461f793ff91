"""TRL's DistillationTrainer on prompts that are tokens already, with a random state that steps alone decide.

The student writes a summary y of a prompt x, and the loss of each token is a divergence between the student's
and the teacher's next-token distribution after (x, y up to it): reverse KL by default, beta 1 of the
generalised Jensen-Shannon divergence (Agarwal et al., "On-Policy Distillation of Language Models",
arXiv 2306.13649, equations 1 and 4).
"""

from typing import Any

from datasets import Dataset
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments, set_seed
from trl import DistillationTrainer
from trl.trainer.utils import RepeatSampler


class OnPolicyTrainer(DistillationTrainer):
    """`train_dataset` and `eval_dataset`: rows of one column, `prompt`, the token ids of a prompt."""

    def _tokenize_prompts(self, prompts: list[list[int]]) -> tuple[list[list[int]], None, dict[str, Any]]:
        """TRL would render messages here; ours were rendered as a server does, and checked."""
        return prompts, None, {}

    def _get_train_sampler(self, dataset: Dataset | None = None) -> RepeatSampler:
        sampler: Any = super()._get_train_sampler(dataset)
        return EpochSampler(
            sampler.data_source,
            mini_repeat_count=sampler.mini_repeat_count,
            batch_size=sampler.batch_size,
            repeat_count=sampler.repeat_count,
            shuffle=sampler.shuffle,
            seed=sampler.seed,
        )


class EpochSampler(RepeatSampler):
    """An order of rows for each epoch; TRL's depends on how many epochs this process has begun.

    Can go once TRL's sampler has a `set_epoch`: a resumed run begins with the first order again.
    """

    def set_epoch(self, epoch: int) -> None:
        """Called by accelerate's data loader."""
        if self.shuffle and self.seed is not None:
            self.generator.manual_seed(self.seed + epoch)


class SeedEachStep(TrainerCallback):
    """What a step samples depends on its number and process, not on evaluations or resumptions before it."""

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
    ) -> None:
        set_seed(args.seed + 1000 * state.global_step + args.process_index)
