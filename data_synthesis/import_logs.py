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
from pathlib import Path

from condensery.compaction import compactions_of
from condensery.files.config import fail, parse_args, resolved_config
from condensery.files.jsonl import read_jsonl, write_jsonl
from condensery.files.run_directory import check_same_run, describe_run, open_run_directory
from condensery.prompt import load_template
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
        cutting = config.cutting(_load_tokenizer(config.tokenizer))
        trajectories = number_duplicates([run for log in logs for run in log.trajectories])[: config.limit]
        if config.dry_run:
            _report(Counter(), trajectories, [row for log in logs for row in log.rejected], logs)
            return 0
        if endpoint := config.endpoint():
            asyncio.run(endpoint.check())
        directory = open_run_directory(config.output_dir, config.resume)
        check_same_run(directory, resolved_config(config), files)
    except (OSError, ValueError, EndpointError) as error:
        fail(PROG, " ".join(str(error).split()))
    describe_run(directory, resolved_config(config), files)
    try:
        failed = asyncio.run(cut_all(trajectories, cutting, config, directory))
    except KeyboardInterrupt:
        print(f"{PROG}: interrupted; finished runs are kept, go on with --resume", file=sys.stderr)
        return 130
    return _finish(directory, config, files, logs, trajectories, failed)


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
        found = {file: scan_log(file) for file in sorted(path.rglob("*")) if file.suffix in SUFFIXES}
        if not any(log.trajectories for log in found.values()):
            raise ValueError(f"{path}: no agent run in the {len(found)} {', '.join(SUFFIXES)} files below it")
        logs |= found
    return logs


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
    # With another --limit than before the file may hold runs that this one was not asked for.
    wanted = {run.id for run in trajectories}
    rows = [row for row in read_jsonl(directory / "trajectories.jsonl") if row["id"] in wanted]
    done = [Trajectory.model_validate(row) for row in rows]
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
    counts = _report(Counter(compactions=len(compactions)), done, rejected, logs)
    describe_run(directory, resolved_config(config), files, counts)
    if done and not compactions:
        longest = max(run.num_tokens or 0 for run in done)
        print(
            f"nothing was compacted in a window of {config.window_tokens} tokens: the longest run has "
            f"{longest}, and a run must go on after it is full; lower --window_tokens",
            file=sys.stderr,
        )
    return 1 if rejected and config.on_error == "fail" else 0


def _report(counts: Counter, runs: list[Trajectory], rejected: list[Rejected], logs: list[Log]) -> dict:
    """The counts of the run, printed as a table on stderr."""
    messages = [message for run in runs for message in run.messages]
    marks = [int(size) for message in messages for size in MARK.findall(message.model_dump_json())]
    counts.update(
        trajectories=len(runs), messages=len(messages), excerpts=len(marks), excerpted_tokens=sum(marks)
    )
    counts["questions"] = len({run.question_id for run in runs})
    counts["trajectories_without_compaction"] = sum(not run.cuts for run in runs)
    for log in logs:
        counts.update({f"note_{name}": count for name, count in log.notes.items()})
    counts.update(
        {f"rejected_{name}": count for name, count in Counter(row.reason for row in rejected).items()}
    )
    for name, count in sorted(counts.items()):
        print(f"{count:>10}  {name.replace('_', ' ')}", file=sys.stderr)
    return dict(counts)
