"""Does a training run fit on its disk? Checkpoints and the saved student against what is free, beforehand."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from modeling.memory_plan import GIB, MemoryPlan


@dataclass(frozen=True)
class DiskPlan:
    """Bytes: `num_checkpoints` stand at once, each with the trained weights and the optimizer's states."""

    checkpoint: float
    num_checkpoints: int
    student: float

    @property
    def total(self) -> float:
        return self.checkpoint * self.num_checkpoints + self.student

    def __str__(self) -> str:
        return (
            f"disk: {self.total / GIB:.2f} GiB ({self.num_checkpoints} checkpoints of "
            f"{self.checkpoint / GIB:.2f}, the student {self.student / GIB:.2f})"
        )


def check_disk(training: Any, memory: MemoryPlan, num_steps: int) -> DiskPlan:
    """Raises ValueError where the file system of --output_dir has less free than the run writes."""
    student = memory.gradients * memory.num_shards  # as many bytes as the trained weights have
    states = 0.0 if training.save_only_model else memory.optimizer * memory.num_shards
    plan = DiskPlan(student + states, num_checkpoints(training, num_steps), student)
    folder = Path(training.output_dir).resolve()
    place = next(parent for parent in (folder, *folder.parents) if parent.exists())
    # What an interrupted run has written is written over, or counted as written already.
    written = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    free = shutil.disk_usage(place).free + written
    if plan.total > free:
        raise ValueError(
            f"{training.output_dir} needs {plan}, and {free / GIB:.2f} GiB are free; lower "
            "--save_total_limit, raise --save_steps, or choose another --output_dir"
        )
    return plan


def num_checkpoints(training: Any, num_steps: int) -> int:
    """How many stand at once: an old one is deleted when the new one is whole."""
    if str(training.save_strategy) in ("no", "SaveStrategy.NO"):
        return 0
    saved = num_steps if training.save_steps < 1 else -(-num_steps // int(training.save_steps))
    return min(saved, training.save_total_limit + 1) if training.save_total_limit else saved
