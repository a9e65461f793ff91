"""Training pairs from recorded or imported runs: built, checked, split by question, described.

    condensery pairs runs/record --output_dir runs/pairs --tokenizer smollm2-135m-instruct --held_out 0.1

Writes `train.jsonl` and `held_out.jsonl` (TRL's conversational prompt/completion rows), beside each its
compactions with their facts (`compactions_train.jsonl`, `compactions_held_out.jsonl`), `rejected.jsonl`, the
text of the prompt template, `data_card.md` and `data_card.json`. Exit status: 0, 1 when rows were dropped, 2
when not even started.
"""

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from tqdm import tqdm

from condensery.compaction import Compaction, compactions_of
from condensery.files.config import fail, parse_args, resolved_config
from condensery.files.jsonl import read_records, write_jsonl
from condensery.files.run_directory import check_same_run, describe_run, open_run_directory, write_json
from condensery.prompt import load_template, template_files
from condensery.tokens import Tokenizer
from condensery.trajectory import Trajectory
from condensery.verdict import FILE
from data_synthesis.data_card import describe_origin, describe_pairs, to_markdown
from data_synthesis.pair import Dropped, Pair, build_pair, drop
from data_synthesis.pairs_config import PairsConfig
from data_synthesis.policy import (
    check_pair,
    contaminated,
    hard_questions,
    keep_best,
    near_duplicates,
    verdicts_of,
)
from data_synthesis.run_costs import costs_of
from data_synthesis.split import held_out_questions
from data_synthesis.summarize_runs import FILE as SAMPLES
from data_synthesis.summarize_runs import read_samples

PROG = "condensery pairs"


def main(argv: list[str] | None = None) -> int:
    example = f"{PROG} runs/record --output_dir runs/pairs --tokenizer smollm2-135m-instruct"
    config = parse_args(PairsConfig, argv=argv, prog=PROG, description=__doc__, example=example)
    try:
        files = [trajectories_file(path) for path in config.paths]
        runs = {file.parent: list(read_records(file, Trajectory)) for file in files}
        load_template(config.prompt_template)
        tokenizer = _load_tokenizer(config.tokenizer)
        pairs, compactions, dropped = build_pairs(runs, config, tokenizer)
        splits = split_pairs(pairs, compactions, dropped, config)
        inputs = [*files, *template_files(config.prompt_template), *config.files()]
        beside = [file.parent / name for file in files for name in (FILE, SAMPLES)]
        inputs += [path for path in beside if path.exists()]
        if not config.dry_run:
            directory = open_run_directory(config.output_dir, config.resume)
            check_same_run(directory, resolved_config(config), inputs)
        card = describe_pairs(splits, dropped, config.tokenizer or "an estimate")
        card |= describe_origin(runs, costs_of(runs), config.prices())
        text = to_markdown(card, list(map(str, config.paths)))
        print(text, file=sys.stdout if config.dry_run else sys.stderr)
        if not config.dry_run:
            write_pairs(directory, splits, compactions, dropped, config)
            write_json(directory / "data_card.json", card)
            (directory / "data_card.md").write_text(text, encoding="utf-8")
            describe_run(directory, resolved_config(config), inputs, card)
    except (OSError, ValueError) as error:
        fail(PROG, " ".join(str(error).split()))
    if dropped and not config.dry_run:
        print(
            f"{len(dropped)} dropped, why: {config.output_dir / 'rejected.jsonl'}; exit status "
            f"{int(config.on_error == 'fail')} (--on_error {config.on_error})",
            file=sys.stderr,
        )
    return 1 if dropped and config.on_error == "fail" else 0


def trajectories_file(path: Path) -> Path:
    """The file of a run directory. Raises ValueError when there is none, or it holds nothing."""
    file = path / "trajectories.jsonl" if path.is_dir() else path
    if not file.is_file():
        raise ValueError(f"no {file}; `condensery record` and `condensery import` write it")
    if not file.stat().st_size:
        raise ValueError(f"{file} holds no trajectory")
    return file


def build_pairs(
    runs: dict[Path, list[Trajectory]], config: PairsConfig, tokenizer: Tokenizer | None
) -> tuple[list[Pair], dict[str, Compaction], list[Dropped]]:
    """(pairs, their compactions by id, what was dropped); every cut ends in the first or the last."""
    pairs: list[Pair] = []
    kept: dict[str, Compaction] = {}
    dropped: list[Dropped] = []
    seen: set[str] = set()
    can_be_hard = _answered_with_full_history(config)
    for directory, own in runs.items():
        verdicts = verdicts_of(directory, own)
        samples = {} if config.samples == "recorded" else read_samples(directory)
        for run in tqdm(own, unit="run", desc="pairs", disable=None):
            for compaction, cut in zip(compactions_of(run), run.cuts):
                # Popped: the retry of a failed summary asks the same again.
                rows = [
                    build_pair(compaction, each, config.prompt_template, tokenizer)
                    for each in [cut, *samples.pop(compaction.id, [])]
                ]
                if config.samples == "best":
                    rows = keep_best(rows, compaction, config.best_by)
                for row in rows:
                    if isinstance(row, Pair) and can_be_hard is not None:
                        row.hard = run.question_id in can_be_hard and verdicts[run.id] is False
                    if isinstance(row, Pair):
                        row = _check(row, compaction, seen, verdicts[run.id], config)
                    if isinstance(row, Dropped):
                        dropped.append(row)
                        continue
                    seen.add(row.id)
                    pairs.append(row)
                    kept[compaction.id] = compaction
    tasks = {pair.question_id: kept[pair.compaction_id].task for pair in pairs}
    out = contaminated(pairs, tasks, config.contamination)
    if config.near_duplicates is not None:
        out |= near_duplicates([pair for pair in pairs if pair.id not in out], config.near_duplicates)
    return [pair for pair in pairs if pair.id not in out], kept, dropped + list(out.values())


def _answered_with_full_history(config: PairsConfig) -> set[str] | None:
    if config.contrast is None:
        return None
    return hard_questions(config.contrast, read_records(trajectories_file(config.contrast), Trajectory))


def _check(
    pair: Pair, compaction: Compaction, seen: set[str], verdict: bool | None, config: PairsConfig
) -> Pair | Dropped:
    if pair.id in seen:
        return drop(compaction, "duplicate", f"the same prompt and completion as pair {pair.id}")
    return check_pair(pair, verdict, config) or pair


def split_pairs(
    pairs: list[Pair], compactions: dict[str, Compaction], dropped: list[Dropped], config: PairsConfig
) -> dict[str, list[Pair]]:
    if not pairs and dropped:
        reasons = Counter(row.reason for row in dropped).most_common()
        counts = ", ".join(f"{count} {reason}" for reason, count in reasons)
        raise ValueError(f"no pair: all {len(dropped)} were dropped ({counts}); first: {dropped[0].detail}")
    if not pairs:
        raise ValueError(
            "no pair: no run has a compaction with an accepted summary; record or import at a small window"
        )
    tasks = {pair.question_id: compactions[pair.compaction_id].task for pair in pairs}
    held_out = held_out_questions(tasks, config.held_out, config.seed)
    splits = {"train": [pair for pair in pairs if pair.question_id not in held_out]}
    if held_out:
        splits["held_out"] = [pair for pair in pairs if pair.question_id in held_out]
    return splits


def write_pairs(
    directory: Path,
    splits: dict[str, list[Pair]],
    compactions: dict[str, Compaction],
    dropped: list[Dropped],
    config: PairsConfig,
) -> None:
    for name, rows in splits.items():
        write_jsonl(directory / f"{name}.jsonl", (row.model_dump() for row in rows))
        export_rows(directory, name, rows, config.formats)
        own = [compactions[row.compaction_id] for row in rows]
        write_jsonl(
            directory / f"compactions_{name}.jsonl", (each.model_dump(exclude_none=True) for each in own)
        )
    write_jsonl(directory / "rejected.jsonl", map(asdict, dropped))
    template_text = load_template(config.prompt_template)[1]
    (directory / "prompt_template.jinja").write_text(template_text, encoding="utf-8")


def export_rows(directory: Path, name: str, rows: list[Pair], formats: Sequence[str]) -> None:
    """The same rows for other readers; their schema is given, not guessed."""
    if not {"parquet", "datasets"} & set(formats):
        return
    import datasets  # seconds of import time

    text = datasets.Value("string")
    turn = [{"role": text, "content": text}]
    schema: dict = dict.fromkeys(Pair.model_fields, text) | {"prompt": turn, "completion": turn}
    schema["hard"] = datasets.Value("bool")
    schema |= {
        name: datasets.Value("int64") for name, info in Pair.model_fields.items() if info.annotation is int
    }
    table = datasets.Dataset.from_list([row.model_dump() for row in rows], datasets.Features(schema))
    if "parquet" in formats:
        table.to_parquet(directory / f"{name}.parquet")
    if "datasets" in formats:
        table.save_to_disk(directory / "datasets" / name)


def _load_tokenizer(name: str | None) -> Tokenizer | None:
    if name is None:
        return None
    from modeling.loading import load_tokenizer  # seconds of import time

    return load_tokenizer(name)
