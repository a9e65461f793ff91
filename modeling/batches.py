"""How many pairs one optimizer step sees, on any number of processes: said before a model is loaded."""

from dataclasses import dataclass


@dataclass(frozen=True)
class BatchPlan:
    """global = per_device x num_processes x gradient_accumulation_steps."""

    per_device: int
    num_processes: int
    gradient_accumulation_steps: int
    num_rows: int
    num_steps: int

    def __str__(self) -> str:
        size = self.per_device * self.num_processes * self.gradient_accumulation_steps
        epochs = self.num_steps * size / self.num_rows
        return (
            f"{self.num_rows} pairs; a step sees {size} = {self.per_device} per device x "
            f"{self.num_processes} process(es) x {self.gradient_accumulation_steps} accumulated; "
            f"{self.num_steps} steps = {epochs:.2f} epochs"
        )


def plan_batches(
    global_batch_size: int,
    per_device: int,
    num_processes: int,
    num_rows: int,
    num_epochs: float,
    max_steps: int,
) -> BatchPlan:
    """Derive the accumulation. Raises ValueError with the values that would divide.

    `max_steps` > 0 wins over `num_epochs`, as in the Trainer. An epoch's last, smaller step counts.
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
    steps_per_epoch = -(-num_rows // global_batch_size)
    num_steps = max_steps if max_steps > 0 else int(-(-num_epochs * steps_per_epoch // 1))
    if num_steps < 1:
        raise ValueError(
            f"max_steps {max_steps} and num_train_epochs {num_epochs:g} are no step; raise one of them"
        )
    return BatchPlan(per_device, num_processes, global_batch_size // together, num_rows, num_steps)
