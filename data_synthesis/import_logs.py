"""Agent logs into trajectories with summaries, cut where an agent with the chosen window would compact.

    condensery import runs.jsonl --output_dir runs/logs --window_tokens 4096 --max_row_tokens 2048
    condensery import logs/ --output_dir runs/logs --teacher http://localhost:8000/v1 --teacher_model gpt-oss

Writes `trajectories.jsonl` (a row as soon as it is done), `compactions.jsonl`, `rejected.jsonl`, `run.json`
and `calls.jsonl` (what a teacher endpoint answered). Exit status: 0, 1 when rows were rejected, 2 when not
even started.
"""

import asyncio
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from condensery.compaction import compactions_of
from condensery.files.config import fail, parse_args, resolved_config
from condensery.files.jsonl import read_records, write_jsonl
from condensery.files.run_directory import check_same_run, describe_run, open_run_directory, status_of_unused
from condensery.message import Message
from condensery.prompt import load_template, template_files
from condensery.reply import EndpointError
from condensery.tokens import Tokenizer
from condensery.trajectory import Trajectory
from data_synthesis.cutter import cut_all, reject
from data_synthesis.excerpt import MARK
from data_synthesis.import_config import ImportConfig
from data_synthesis.importers.log_file import Log, Rejected, read_log, scan_log

PROG = "condensery import"
SUFFIXES = (".json", ".jsonl", ".traj")


def main(argv: list[str] | None = None) -> int:
    example = f"{PROG} runs.jsonl --output_dir runs/logs --window_tokens 4096 --max_row_tokens 2048"
    config = parse_args(ImportConfig, argv=argv, prog=PROG, description=__doc__, example=example)
    try:
        logs_by_file = read_logs(config.paths)
        files, logs = list(logs_by_file), list(logs_by_file.values())
        load_template(config.prompt_template)
        inputs = files + template_files(config.prompt_template)
        cutting = config.cutting(_load_tokenizer(config.tokenizer))
        trajectories = number_duplicates([run for log in logs for run in log.trajectories])[: config.limit]
        if config.dry_run:
            _report(
                Counter(), trajectories, trajectories, [row for log in logs for row in log.rejected], logs
            )
            return 0
        if endpoint := config.endpoint():
            asyncio.run(endpoint.check())
        directory = open_run_directory(config.output_dir, config.resume)
        check_same_run(directory, resolved_config(config), inputs)
        describe_run(directory, resolved_config(config), inputs)
    except (OSError, ValueError, EndpointError) as error:
        fail(PROG, " ".join(str(error).split()))
    try:
        failed = asyncio.run(cut_all(trajectories, cutting, config, directory))
        return _finish(directory, config, inputs, logs, trajectories, failed)
    except KeyboardInterrupt:
        print(f"{PROG}: interrupted; finished runs are kept, go on with --resume", file=sys.stderr)
        return 130
    except (OSError, ValueError) as error:  # a full disk, another writer, a damaged file of an earlier run
        fail(PROG, f"{error}; finished runs are kept, go on with --resume", status=1)


def read_logs(paths: list[Path]) -> dict[Path, Log]:
    """Logs by file. Raises ValueError for a path without a run, be it a file or a folder.

    Beside the runs of a folder may lie other files; their rows are rejected by name.
    """
    logs: dict[Path, Log] = {}
    for path in paths:
        if not path.exists():
            raise ValueError(f"no file or folder {path}")
        if not path.is_dir():
            logs[path] = read_log(path)
            continue
        files, skipped = files_below(path)
        found = {file: scan_log(file) for file in files}
        if not any(log.trajectories for log in found.values()):
            raise ValueError(
                f"{path}: no agent run in the {len(found)} {', '.join(SUFFIXES)} files below it, "
                f"{len(skipped)} other files"
            )
        if skipped:
            names = ", ".join(path.name for path in skipped[:3])
            print(
                f"{path}: {len(skipped)} files not read (no {', '.join(SUFFIXES)}): {names}", file=sys.stderr
            )
        logs |= found
    return logs


def files_below(folder: Path) -> tuple[list[Path], list[Path]]:
    """(log files, other files) of a folder. Runs of ours below it are not logs: an earlier import, say.
    Of what was captured the conversations are: the exchanges hold the same turns again."""
    captured = {path.parent for path in folder.rglob("exchanges.jsonl")}
    runs = {path.parent for path in folder.rglob("run.json")} - {folder} - captured
    own = {place / name for place in captured for name in ("exchanges.jsonl", "run.json")}
    files = [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and runs.isdisjoint(path.parents) and path not in own
    ]
    logs = [path for path in files if path.suffix.lower() in SUFFIXES]
    return logs, [path for path in files if path not in logs]


def number_duplicates(trajectories: list[Trajectory]) -> list[Trajectory]:
    """Equal runs are legal; from the second on their ids carry an occurrence number."""
    seen: Counter[str] = Counter()
    numbered = []
    for run in trajectories:
        seen[run.id] += 1
        suffix = f"-{seen[run.id]}" if seen[run.id] > 1 else ""
        numbered.append(run.model_copy(update={"id": run.id + suffix}))
    return numbered


def _load_tokenizer(name: str | None) -> Tokenizer | None:
    if name is None:
        return None
    from modeling.loading import load_tokenizer  # seconds of import time

    return load_tokenizer(name)


def _finish(
    directory: Path,
    config: ImportConfig,
    files: list[Path],
    logs: list[Log],
    trajectories: list[Trajectory],
    failed: list[Rejected],
) -> int:
    """Everything that follows from the logs and the finished rows, whether this run was resumed or not."""
    done = list(read_records(directory / "trajectories.jsonl", Trajectory))
    compactions = [compaction for run in done for compaction in compactions_of(run)]
    rejected = [row for log in logs for row in log.rejected] + failed
    rejected += [
        reject(run, "summary_failed", f"{cut.failure} at message {cut.position}")
        for run in done
        for cut in run.cuts
        if cut.failure
    ]
    write_jsonl(directory / "compactions.jsonl", [each.model_dump(exclude_none=True) for each in compactions])
    write_jsonl(directory / "rejected.jsonl", [row.to_row() for row in rejected])
    uncut = sum(not run.cuts for run in done)
    found = Counter(compactions=len(compactions), trajectories_without_compaction=uncut)
    counts = _report(found, done, trajectories, rejected, logs)
    status = status_of_unused(len(rejected), "rejected", directory / "rejected.jsonl", config.on_error)
    describe_run(directory, resolved_config(config), files, counts)
    if config.tokenizer is None:
        print("tokens are estimated; count them as the student does with --tokenizer", file=sys.stderr)
    if done and not compactions:
        longest = max(run.num_tokens or 0 for run in done)
        print(
            f"nothing was compacted in a window of {config.window_tokens} tokens: the longest run has "
            f"{longest}, and a run must go on after it is full; lower --window_tokens",
            file=sys.stderr,
        )
    return status


def _report(
    counts: Counter,
    runs: list[Trajectory],
    originals: list[Trajectory],
    rejected: list[Rejected],
    logs: list[Log],
) -> dict:
    """The counts of the run, printed as a table on stderr."""
    messages = [message for run in runs for message in run.messages]
    marks = _marks(messages) - _marks(message for run in originals for message in run.messages)
    counts.update(trajectories=len(runs), messages=len(messages), excerpts=marks.total())
    counts["excerpted_tokens"] = sum(size * count for size, count in marks.items())
    counts["questions"] = len({run.question_id for run in runs})
    for log in logs:
        counts.update({f"note_{name}": count for name, count in log.notes.items()})
    counts.update(
        {f"rejected_{name}": count for name, count in Counter(row.reason for row in rejected).items()}
    )
    for name, count in sorted(counts.items()):
        print(f"{count:>10}  {name.replace('_', ' ')}", file=sys.stderr)
    return dict(counts)


def _marks(messages: Iterable[Message]) -> Counter[int]:
    """Tokens left out at each mark of an excerpt; a log may hold some of its own."""
    return Counter(int(size) for message in messages for size in MARK.findall(message.model_dump_json()))
