"""The fields of `condensery pairs`: from which runs, in which form, split how."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from condensery.split import check_held_out
from data_synthesis.policy import PolicyConfig


@dataclass(kw_only=True)
class PairsConfig(PolicyConfig):
    """From which runs, in which form, split how."""

    paths: list[Path] = field(
        metadata={"positional": True, "help": "run directories, or trajectories.jsonl files"}
    )
    output_dir: Path = field(metadata={"help": "where the pairs go"})
    prompt_template: str = field(default="compact_v1", metadata={"help": "a name, or the path of a file"})
    tokenizer: str | None = field(
        default=None, metadata={"help": "the student, whose tokens are counted; default: an estimate"}
    )
    held_out: float = field(
        default=0.1, metadata={"help": "below 1 a share of the questions, else their number; 0 for none"}
    )
    samples: Literal["recorded", "all", "best"] = field(
        default="recorded",
        metadata={"help": "of several summaries (condensery summarize): the run's own, all, or the best"},
    )
    best_by: Literal["provenance", "recall", "length"] = field(
        default="provenance",
        metadata={"help": "fewest statements without ground, most facts kept, or the shortest"},
    )
    seed: int = field(default=0, metadata={"help": "of the split"})
    formats: list[Literal["jsonl", "parquet", "datasets"]] = field(
        default_factory=lambda: ["jsonl"],
        metadata={
            "help": "parquet, and datasets (for load_from_disk, a folder each split), beside the JSON lines"
        },
    )
    price_prompt: float | None = field(
        default=None, metadata={"help": "per million tokens read: the card then has what the runs cost"}
    )
    price_completion: float | None = field(default=None, metadata={"help": "per million tokens written"})
    price_cached: float | None = field(
        default=None, metadata={"help": "per million tokens that came out of a cache (default: as read)"}
    )
    on_error: Literal["fail", "skip"] = field(
        default="fail", metadata={"help": "exit status when rows were dropped: fail=1, skip=0"}
    )
    resume: bool = field(default=False, metadata={"help": "write the same pairs again into their directory"})
    dry_run: bool = field(default=False, metadata={"help": "print the data card and write nothing"})

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.price_prompt is None) != (self.price_completion is None):
            raise ValueError("give both --price_prompt and --price_completion, or neither")
        check_held_out(self.held_out)

    def prices(self) -> dict[str, float] | None:
        if self.price_prompt is None or self.price_completion is None:
            return None
        cached = self.price_prompt if self.price_cached is None else self.price_cached
        return {"prompt": self.price_prompt, "completion": self.price_completion, "cached": cached}
