"""Training contexts from recorded or imported runs, without any teacher: cut, divided, masked, described.

    condensery instances runs/web runs/code --output_dir runs/instances --tokenizer Qwen/Qwen3.5-2B
    condensery instances runs/logs --output_dir runs/instances --context_tokens 1024 2048

Writes `instances.jsonl` and, on other questions, `held_out.jsonl`; `rejected.jsonl` (each piece of a run that
is not used, with its reason), `data_card.md`, `data_card.json` and `run.json`. Exit status: 0; 1 when a piece
was rejected for more than being too short or not drawn; 2 when not even started.
"""

import hashlib
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import asdict
from functools import lru_cache
from itertools import zip_longest
from pathlib import Path

from tqdm import tqdm

from condensery.files.config import fail, parse_args, resolved_config
from condensery.files.jsonl import read_records, replace_jsonl, scan_jsonl, write_jsonl
from condensery.files.run_directory import (
    check_same_run,
    describe_run,
    open_run_directory,
    status_of_unused,
    write_json,
)
from condensery.split import held_out_questions
from condensery.tokens import Tokenizer, count_tokens
from condensery.trajectory import Trajectory, trajectories_file
from reconstruct.building import build_instance
from reconstruct.contexts import MeasuredRun, Unused, contexts_of
from reconstruct.instance import Instance
from reconstruct.instances_card import Row, describe_instances, row_of, to_markdown
from reconstruct.instances_config import InstancesConfig

PROG = "condensery instances"
EXPECTED = {"too_short", "not_drawn"}  # no fault of the data
BALANCED = ("source", "language", "context_tokens")


def main(argv: list[str] | None = None) -> int:
    example = f"{PROG} runs/web runs/code --output_dir runs/instances --tokenizer Qwen/Qwen3.5-2B"
    config = parse_args(InstancesConfig, argv=argv, prog=PROG, description=__doc__, example=example)
    try:
        files = {path: trajectories_file(path) for path in config.paths}
        tokenizer = _load_tokenizer(config.tokenizer)
        if not config.dry_run:
            open_run_directory(config.output_dir, config.resume)
            check_same_run(config.output_dir, resolved_config(config), files.values())
        rows, unused, held_out = write_instances(files, config, tokenizer)
        card = describe_instances(rows, unused, held_out, config.tokenizer or "an estimate")
        text = to_markdown(card, list(map(str, config.paths)))
        print(text, file=sys.stdout if config.dry_run else sys.stderr)
        if not config.dry_run:
            write_jsonl(config.output_dir / "rejected.jsonl", map(asdict, unused))
            write_json(config.output_dir / "data_card.json", card)
            (config.output_dir / "data_card.md").write_text(text, encoding="utf-8")
            describe_run(config.output_dir, resolved_config(config), files.values(), card)
    except (OSError, ValueError) as error:
        fail(PROG, " ".join(str(error).split()))
    rejected = [piece for piece in unused if piece.reason not in EXPECTED]
    place = config.output_dir / "rejected.jsonl"
    if config.dry_run:
        return int(bool(rejected) and config.on_error == "fail")
    return status_of_unused(len(rejected), "rejected", place, config.on_error)


def write_instances(
    files: dict[Path, Path], config: InstancesConfig, tokenizer: Tokenizer | None
) -> tuple[list[Row], list[Unused], set[str]]:
    """(figures of the instances drawn, what is not used, the questions that are held out).

    One run is in memory at a time: all that may be drawn goes into a file first, and from it what was drawn.
    """
    rows: list[Row] = []
    unused: list[Unused] = []
    tasks: dict[str, str] = {}
    candidates = config.output_dir / "candidates.jsonl"
    with nullcontext(_write_nothing) if config.dry_run else replace_jsonl(candidates) as write:
        for found in find_instances(files, config, tokenizer):
            if isinstance(found, Unused):
                unused.append(found)
            else:
                rows.append(found[1])
                tasks[found[1].question_id] = found[0].compaction.task
                write(found[0].model_dump(exclude_none=True))
    if not rows:
        reasons = Counter(piece.reason for piece in unused).most_common()
        counts = ", ".join(f"{count} {reason}" for reason, count in reasons) or "no trajectory"
        first = f"; the first: {unused[0].detail}" if unused else ""
        raise ValueError(f"no instance at --context_tokens {config.context_tokens}: {counts}{first}")
    drawn = {row.id: row for row in in_turns(rows, BALANCED, config.seed)[: config.limit]}
    asked = {row.question_id: tasks[row.question_id] for row in rows if row.id in drawn}
    held_out = held_out_questions(asked, config.held_out, config.seed)
    if not config.dry_run:
        for name in ("instances", "held_out") if held_out else ("instances",):
            texts = (
                row
                for _, row in scan_jsonl(candidates)
                if isinstance(row, dict)
                and row["id"] in drawn
                and (drawn[row["id"]].question_id in held_out) == (name == "held_out")
            )
            write_jsonl(config.output_dir / f"{name}.jsonl", texts)
        candidates.unlink()
    unused += [row.piece for row in rows if row.id not in drawn]
    return list(drawn.values()), unused, held_out


def _write_nothing(row: dict) -> None:
    """What a dry run does."""


def find_instances(
    files: dict[Path, Path], config: InstancesConfig, tokenizer: Tokenizer | None
) -> Iterator[tuple[Instance, Row] | Unused]:
    """Every piece of every run at every length: an instance with its figures, or why it is none."""
    count = lru_cache(maxsize=1024)(lambda text: count_tokens(text, tokenizer))
    seen: set[str] = set()
    for source, file in files.items():
        for run in tqdm(read_records(file, Trajectory), unit="run", desc="instances", disable=None):
            measured = MeasuredRun(run, source, file, count)
            for context_tokens in config.context_tokens:
                for context in contexts_of(measured, context_tokens, config.retained_tokens):
                    if isinstance(context, Unused):
                        yield context
                        continue
                    found = build_instance(measured, context, config, seen)
                    yield found if isinstance(found, Unused) else (found, row_of(found, measured, context))


def in_turns(rows: list[Row], keys: tuple[str, ...], seed: int) -> list[Row]:
    """The rows in an order of which every beginning is balanced by the first key, within that by the next,
    as long as there are rows of each; equal ones in an order drawn by a seeded hash of their ids."""
    if not keys:
        return sorted(rows, key=lambda row: hashlib.sha256(f"{seed}:{row.id}".encode()).digest())
    groups: dict[object, list[Row]] = {}
    for row in rows:
        groups.setdefault(vars(row)[keys[0]], []).append(row)
    orders = [in_turns(group, keys[1:], seed) for group in groups.values()]
    return [row for turn in zip_longest(*orders) for row in turn if row is not None]


def _load_tokenizer(name: str | None) -> Tokenizer | None:
    if name is None:
        return None
    from modeling.loading import load_tokenizer  # seconds of import time

    return load_tokenizer(name)


if __name__ == "__main__":
    sys.exit(main())
