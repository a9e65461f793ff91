"""How many pairs one optimizer step sees, on any number of processes: said before a model is loaded."""

import random
from dataclasses import dataclass


@dataclass(frozen=True)
class BatchPlan:
    """global = per_device x num_processes x gradient_accumulation_steps."""

    per_device: int
    num_processes: int
    gradient_accumulation_steps: int
    num_rows: int
    num_steps: int
    padding: float  # share of a batch's tokens that only fill it up

    def __str__(self) -> str:
        size = self.per_device * self.num_processes * self.gradient_accumulation_steps
        epochs = self.num_steps * size / self.num_rows
        padded = (
            f"; {self.padding:.0%} of the tokens are padding, none with --padding_free or one row a batch"
        )
        return (
            f"{self.num_rows} pairs; a step sees {size} = {self.per_device} per device x "
            f"{self.num_processes} process(es) x {self.gradient_accumulation_steps} accumulated; "
            f"{self.num_steps} steps = {epochs:.2f} epochs" + (padded if self.padding >= 0.05 else "")
        )


def plan_batches(
    global_batch_size: int,
    per_device: int,
    num_processes: int,
    lengths: list[int],
    num_epochs: float,
    max_steps: int,
) -> BatchPlan:
    """Derive the accumulation. Raises ValueError with the values that would divide.

    `lengths`: tokens of each row. `max_steps` > 0 wins over `num_epochs`, as in the Trainer. An epoch's
    last, smaller step counts.
    """
    for name, value in (
        ("global_batch_size", global_batch_size),
        ("per_device_train_batch_size", per_device),
    ):
        if value < 1:
            raise ValueError(f"{name} is {value}; it must be at least 1")
    together = per_device * num_processes
    if global_batch_size % together:
        share, rest = divmod(global_batch_size, num_processes)
        fitting = [str(size) for size in range(1, share + 1) if share % size == 0] if not rest else []
        advice = (
            f"--per_device_train_batch_size may be one of {', '.join(fitting)}"
            if fitting
            else f"--global_batch_size must be a multiple of the {num_processes} processes"
        )
        raise ValueError(
            f"global_batch_size {global_batch_size} is not a multiple of {per_device} per device x "
            f"{num_processes} process(es) = {together}; {advice}"
        )
    if len(lengths) < global_batch_size:
        raise ValueError(
            f"{len(lengths)} rows are fewer than global_batch_size {global_batch_size}; lower it"
        )
    steps_per_epoch = -(-len(lengths) // global_batch_size)
    num_steps = max_steps if max_steps > 0 else int(-(-num_epochs * steps_per_epoch // 1))
    if num_steps < 1:
        raise ValueError(
            f"max_steps {max_steps} and num_train_epochs {num_epochs:g} are no step; raise one of them"
        )
    accumulated = global_batch_size // together
    padding = padding_share(lengths, per_device)
    return BatchPlan(per_device, num_processes, accumulated, len(lengths), num_steps, padding)


def padding_share(lengths: list[int], per_device: int) -> float:
    """Measured on one shuffled epoch of batches, each as wide as its longest row."""
    shuffled = random.Random(0).sample(lengths, len(lengths))
    batches = [shuffled[start : start + per_device] for start in range(0, len(shuffled), per_device)]
    return 1 - sum(lengths) / sum(max(batch) * len(batch) for batch in batches)
