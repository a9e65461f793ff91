"""What a step sees and samples follows from its number alone, so that a resumed run equals an uninterrupted
one, whatever was evaluated before."""

from typing import Any

from datasets import Dataset
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments, set_seed
from trl.trainer.utils import RepeatSampler


class EpochOrder:
    """For trainers of TRL that generate: an order of rows for each epoch, from its number.

    Can go once TRL's sampler has a `set_epoch`: its order depends on how many epochs this process has begun,
    and a resumed run begins with the first again.
    """

    def _get_train_sampler(self, dataset: Dataset | None = None) -> RepeatSampler:
        sampler: Any = super()._get_train_sampler(dataset)  # type: ignore[misc]
        return EpochSampler(
            sampler.data_source,
            mini_repeat_count=sampler.mini_repeat_count,
            batch_size=sampler.batch_size,
            repeat_count=sampler.repeat_count,
            shuffle=sampler.shuffle,
            seed=sampler.seed,
        )


class EpochSampler(RepeatSampler):
    """TRL's, seeded by epoch."""

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
