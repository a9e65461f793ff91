"""Check every training row before anything is loaded or trained, and list all that is wrong at once.

    condensery preflight runs/pairs/train.jsonl runs/pairs/held_out.jsonl \\
        --model smollm2-135m-instruct --max_length 1024

The checks themselves: `row_checks.py`. Training makes the same ones and stops at them.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from condensery.files.config import fail, parse_args
from condensery.files.jsonl import read_jsonl
from condensery.thinking import Thinking


@dataclass
class PreflightConfig:
    """Which rows to check, against which student."""

    pairs: list[Path] = field(
        metadata={"positional": True, "help": "pairs files (JSONL), checked as one set"}
    )
    model: str = field(metadata={"help": "the student: its tokenizer and chat template render the rows"})
    max_length: int = field(
        default=1024, metadata={"help": "tokens a row may have, prompt and completion", "minimum": 1}
    )
    thinking: Thinking = field(
        default="none",
        metadata={
            "help": "keep: train on the teacher's reasoning; empty: on a thought that closes at once; "
            "none: without; serving follows"
        },
    )


def main(argv: list[str] | None = None) -> int:
    """`condensery preflight`: 0 when every row is fit to train on, 1 when some are not."""
    prog = "condensery preflight"
    config = parse_args(
        PreflightConfig,
        argv=argv,
        prog=prog,
        description="Render every pair with the student's chat template and list all that cannot be "
        "trained on.",
        example=f"{prog} pairs/train.jsonl pairs/eval.jsonl --model smollm2-135m-instruct --max_length 1024",
    )
    from modeling.loading import load_tokenizer
    from modeling.row_checks import check_rows

    try:
        rows = read_pairs(config.pairs)
        tokenizer = load_tokenizer(config.model)
    except (OSError, ValueError) as error:
        fail(prog, error)
    result = check_rows(rows, tokenizer, config.max_length, config.thinking)
    print(result.report())
    return 1 if result.problems else 0


def read_pairs(paths: Iterable[Path]) -> list[dict]:
    """Rows of pairs files. Raises ValueError naming a file that is missing, empty or not JSONL."""
    rows: list[dict] = []
    for path in paths:
        if not path.is_file():
            raise ValueError(f"no pairs file {path}; `condensery pairs` writes them")
        found = read_jsonl(path)
        if not found:
            raise ValueError(f"{path} holds no rows")
        rows += found
    return rows
