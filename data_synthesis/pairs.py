"""Training pairs from recorded or imported runs: built, checked, split by question, described.

    condensery pairs runs/record --output_dir runs/pairs --tokenizer smollm2-135m-instruct --held_out 0.1

Writes `train.jsonl` and `held_out.jsonl` (TRL's conversational prompt/completion rows), beside each its
compactions with their facts (`compactions_train.jsonl`, `compactions_held_out.jsonl`), `rejected.jsonl`, the
text of the prompt template, `data_card.md` and `data_card.json`. Exit status: 0, 1 when rows were dropped, 2
when not even started.
"""

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from itertools import count
from pathlib import Path

from tqdm import tqdm

from condensery.compaction import Compaction, compactions_of
from condensery.files.config import fail, parse_args, resolved_config
from condensery.files.jsonl import read_jsonl, read_records, replace_jsonl, write_jsonl
from condensery.files.run_directory import (
    check_same_run,
    describe_run,
    open_run_directory,
    status_of_unused,
    write_json,
)
from condensery.prompt import load_template, template_files
from condensery.similarity import Shingles, shingles_of
from condensery.split import held_out_questions
from condensery.tokens import Tokenizer
from condensery.trajectory import Cut, Trajectory, trajectories_file
from condensery.verdict import FILE
from data_synthesis.data_card import Origin, describe_origin, describe_pairs, to_markdown
from data_synthesis.pair import Dropped, Pair, build_pair, drop, text_of, without_text
from data_synthesis.pairs_config import PairsConfig
from data_synthesis.policy import (
    check_pair,
    contaminated,
    hard_questions,
    keep_best,
    near_duplicates,
    verdicts_in,
)
from data_synthesis.run_costs import costs_of
from data_synthesis.summarize_runs import FILE as SAMPLES
from data_synthesis.summarize_runs import read_samples

PROG = "condensery pairs"


def main(argv: list[str] | None = None) -> int:
    example = f"{PROG} runs/record --output_dir runs/pairs --tokenizer smollm2-135m-instruct"
    config = parse_args(PairsConfig, argv=argv, prog=PROG, description=__doc__, example=example)
    try:
        files = list(dict.fromkeys(trajectories_file(path) for path in config.paths))
        load_template(config.prompt_template)
        tokenizer = _load_tokenizer(config.tokenizer)
        pairs, tasks, dropped, origin = build_pairs(files, config, tokenizer)
        splits = split_pairs(pairs, tasks, dropped, config)
        inputs = [*files, *template_files(config.prompt_template), *config.files()]
        beside = [file.parent / name for file in files for name in (FILE, SAMPLES)]
        inputs += [path for path in beside if path.exists()]
        if not config.dry_run:
            directory = open_run_directory(config.output_dir, config.resume)
            check_same_run(directory, resolved_config(config), inputs)
        rows = {name: list(pairs.values()) for name, pairs in splits.items()}
        card = describe_pairs(rows, dropped, config.tokenizer or "an estimate")
        costs = costs_of(dict.fromkeys(file.parent for file in files))
        card |= describe_origin(origin, costs, config.prices())
        text = to_markdown(card, list(map(str, config.paths)))
        print(text, file=sys.stdout if config.dry_run else sys.stderr)
        if not config.dry_run:
            write_pairs(directory, files, splits, dropped, config)
            write_json(directory / "data_card.json", card)
            (directory / "data_card.md").write_text(text, encoding="utf-8")
            describe_run(directory, resolved_config(config), inputs, card)
    except (OSError, ValueError) as error:
        fail(PROG, " ".join(str(error).split()))
    place = config.output_dir / "rejected.jsonl"
    if config.dry_run:
        return int(bool(dropped) and config.on_error == "fail")
    return status_of_unused(len(dropped), "dropped", place, config.on_error)


def runs_in(
    files: list[Path], config: PairsConfig
) -> Iterator[tuple[Path, Trajectory, list[tuple[Compaction, dict[int, Cut]]]]]:
    """(file, run, its compactions, each with its summaries), with one run in memory at a time. The summaries
    are numbered through all files, the same way at each call."""
    numbers = count()
    for file in files:
        samples = {} if config.samples == "recorded" else read_samples(file.parent)
        for run in tqdm(read_records(file, Trajectory), unit="run", desc="pairs", disable=None):
            compactions = []
            for compaction, cut in zip(compactions_of(run), run.cuts):
                # Popped: the retry of a failed summary asks the same again.
                cuts = [cut, *samples.pop(compaction.id, [])]
                compactions.append((compaction, {next(numbers): each for each in cuts}))
            yield file, run, compactions


def build_pairs(
    files: list[Path], config: PairsConfig, tokenizer: Tokenizer | None
) -> tuple[dict[int, Pair], dict[str, str], list[Dropped], Origin]:
    """(pairs by the number of their summary, task of each compaction, what was dropped, whence); every
    summary ends in the first or the third. The pairs are without text, which `write_pairs` reads again."""
    pairs: dict[int, Pair] = {}
    tasks: dict[str, str] = {}
    dropped: list[Dropped] = []
    origin = Origin()
    seen: set[str] = set()
    shingles: dict[str, Shingles] = {}
    can_be_hard = _answered_with_full_history(config)
    judged = {file: verdicts_in(file.parent) for file in files}
    for file, run, compactions in runs_in(files, config):
        origin.add(run)
        verdict = judged[file].get(run.id, run.verdict)
        for compaction, cuts in compactions:
            rows = [build_pair(compaction, cut, config.prompt_template, tokenizer) for cut in cuts.values()]
            if config.samples == "best":
                rows = keep_best(rows, compaction, config.best_by)
            for number, row in zip(cuts, rows):
                if isinstance(row, Pair) and can_be_hard is not None:
                    row.hard = run.question_id in can_be_hard and verdict is False
                if isinstance(row, Pair):
                    row = _check(row, compaction, seen, verdict, config)
                if isinstance(row, Dropped):
                    dropped.append(row)
                    continue
                seen.add(row.id)
                if config.near_duplicates is not None:
                    shingles[row.id] = shingles_of(row.prompt[0].content + row.completion[0].content)
                pairs[number] = without_text(row)
                tasks[compaction.id] = sys.intern(compaction.task)
    asked = {pair.question_id: tasks[pair.compaction_id] for pair in pairs.values()}
    out = contaminated(list(pairs.values()), asked, config.contamination)
    if config.near_duplicates is not None:
        left = [pair for pair in pairs.values() if pair.id not in out]
        out |= near_duplicates(left, shingles, config.near_duplicates)
    kept = {number: pair for number, pair in pairs.items() if pair.id not in out}
    return kept, tasks, dropped + list(out.values()), origin


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
    pairs: dict[int, Pair], tasks: dict[str, str], dropped: list[Dropped], config: PairsConfig
) -> dict[str, dict[int, Pair]]:
    if not pairs and dropped:
        reasons = Counter(row.reason for row in dropped).most_common()
        counts = ", ".join(f"{count} {reason}" for reason, count in reasons)
        raise ValueError(f"no pair: all {len(dropped)} were dropped ({counts}); first: {dropped[0].detail}")
    if not pairs:
        raise ValueError(
            "no pair: no run has a compaction with an accepted summary; record or import at a small window"
        )
    asked = {pair.question_id: tasks[pair.compaction_id] for pair in pairs.values()}
    held_out = held_out_questions(asked, config.held_out, config.seed)
    splits = {"train": {number: pair for number, pair in pairs.items() if pair.question_id not in held_out}}
    if held_out:
        splits["held_out"] = {number: pair for number, pair in pairs.items() if pair.question_id in held_out}
    return splits


def write_pairs(
    directory: Path,
    files: list[Path],
    splits: dict[str, dict[int, Pair]],
    dropped: list[Dropped],
    config: PairsConfig,
) -> None:
    """Reads the runs again: each text is in memory only while it is written."""
    with ExitStack() as stack:
        rows: dict[int, tuple] = {}
        for name, pairs in splits.items():
            write_pair = stack.enter_context(replace_jsonl(directory / f"{name}.jsonl"))
            write_compaction = stack.enter_context(replace_jsonl(directory / f"compactions_{name}.jsonl"))
            rows |= {number: (pair, write_pair, write_compaction) for number, pair in pairs.items()}
        for _, _, compactions in runs_in(files, config):
            for compaction, cuts in compactions:
                for number, cut in cuts.items():
                    if number in rows and rows[number][0].compaction_id == compaction.id:
                        pair, write_pair, write_compaction = rows.pop(number)
                        write_pair(pair.model_dump() | text_of(compaction, cut, config.prompt_template))
                        write_compaction(compaction.model_dump(exclude_none=True))
        if rows:
            raise ValueError("the runs were changed while they were read; run the same command again")
    for name in splits:
        export_rows(directory, name, config.formats)
    write_jsonl(directory / "rejected.jsonl", map(asdict, dropped))
    template_text = load_template(config.prompt_template)[1]
    (directory / "prompt_template.jinja").write_text(template_text, encoding="utf-8")


def export_rows(directory: Path, name: str, formats: Sequence[str]) -> None:
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
    table = datasets.Dataset.from_list(read_jsonl(directory / f"{name}.jsonl"), datasets.Features(schema))
    if "parquet" in formats:
        table.to_parquet(directory / f"{name}.parquet")
    if "datasets" in formats:
        table.save_to_disk(directory / "datasets" / name)


def _load_tokenizer(name: str | None) -> Tokenizer | None:
    if name is None:
        return None
    from modeling.loading import load_tokenizer  # seconds of import time

    return load_tokenizer(name)
