"""The settings of `condensery instances`."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from condensery.split import check_held_out


@dataclass
class InstancesConfig:
    """From which runs, at which context lengths, divided and hidden how."""

    paths: list[Path] = field(
        metadata={"positional": True, "help": "run directories, one for each kind of source"}
    )
    output_dir: Path = field(metadata={"help": "where the instances go"})
    context_tokens: list[int] = field(
        default_factory=lambda: [16384, 32768],
        metadata={"help": "lengths at which a run is cut: task, last summary and turns together"},
    )
    retained_tokens: int = field(
        default=0, metadata={"help": "the newest turns that stay with the agent, at most", "minimum": 0}
    )
    earlier_tokens: int = field(
        default=0,
        metadata={
            "help": "of the turns that expired before the last summary, the newest, at most: hidden and "
            "shown like the others, so that a summary pays for memory it throws away",
            "minimum": 0,
        },
    )
    block_tokens: int = field(
        default=512,
        metadata={"help": "about the length of a block, or less where that makes too few", "minimum": 16},
    )
    min_blocks: int = field(default=8, metadata={"help": "blocks a history, at least", "minimum": 2})
    mask_ratio: float = field(default=0.5, metadata={"help": "share of the blocks that is hidden"})
    num_masks: int = field(default=2, metadata={"help": "masks an instance", "minimum": 1})
    tokenizer: str | None = field(
        default=None, metadata={"help": "the student, whose tokens are counted; default: an estimate"}
    )
    held_out: float = field(
        default=0.1,
        metadata={
            "help": "of the drawn ones, below 1 a share of the questions, else their number; 0 for none"
        },
    )
    limit: int | None = field(
        default=None,
        metadata={"help": "so many, drawn in turns from sources, their languages and lengths", "minimum": 1},
    )
    seed: int = field(default=0, metadata={"help": "of the draw, the split and the masks"})
    on_error: Literal["fail", "skip"] = field(
        default="fail", metadata={"help": "exit status when rows were rejected: fail=1, skip=0"}
    )
    resume: bool = field(default=False, metadata={"help": "write the same instances again"})
    dry_run: bool = field(default=False, metadata={"help": "print the data card and write nothing"})

    def __post_init__(self) -> None:
        if not 0 < self.mask_ratio < 1:
            raise ValueError(
                f"--mask_ratio is {self.mask_ratio:g}; a share above 0 and below 1 (SUMONE: 0.5)"
            )
        check_held_out(self.held_out)
        shortest = min(self.context_tokens)
        if shortest < 16 * self.min_blocks:
            raise ValueError(
                f"--context_tokens {shortest} has no room for --min_blocks {self.min_blocks} of 16 tokens"
            )
        if self.retained_tokens > shortest // 4:
            raise ValueError(
                f"--retained_tokens {self.retained_tokens} leaves too little history at --context_tokens "
                f"{shortest}; at most a quarter, {shortest // 4}"
            )
