"""One log file, of whatever family: trajectories, and a typed reason for every row that is none."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from condensery.message import LONE_SURROGATE, whole_characters
from condensery.trajectory import Trajectory
from data_synthesis.importers.atif import is_atif
from data_synthesis.importers.claude_code import fold_sessions
from data_synthesis.importers.codex import fold_rollout
from data_synthesis.importers.conversation import read_conversation, turns_of
from data_synthesis.importers.envelope import BadRow, Row, read_rows
from data_synthesis.importers.inspect_log import unfold_samples
from data_synthesis.importers.openhands import is_events, read_openhands
from data_synthesis.importers.swe_agent import is_history, read_swe_agent
from data_synthesis.importers.tau_bench import read_tau_bench
from data_synthesis.importers.turns import Notes

Reason = Literal[
    "unreadable",  # not JSON, not UTF-8, torn
    "unknown_shape",  # JSON, but no run of a known agent
    "question",  # a task without a run
    "bad_turn",  # a role, part or call that has no meaning here
    "summary_failed",  # the summarizer gave nothing acceptable
    "head_too_long",  # no room for history in the window
    "row_too_long",  # the request stays over the budget, whatever is excerpted
    "endpoint_error",  # the teacher could not be reached
]


@dataclass(frozen=True)
class Rejected:
    """A row that is not used, with its place and why."""

    file: str
    line: int
    reason: Reason
    detail: str

    def to_row(self) -> dict:
        return asdict(self)


@dataclass
class Log:
    """What one file held, and what had to be changed in it, by name."""

    trajectories: list[Trajectory] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)
    notes: Notes = field(default_factory=Notes)


def read_log(path: Path) -> Log:
    """All rows of a file. Raises ValueError, in one line, when none of them is a run of an agent."""
    log = scan_log(path)
    if not log.trajectories:
        raise ValueError(_nothing_usable(path, log.rejected))
    return log


def scan_log(path: Path) -> Log:
    """All rows of a file, be there a run among them or not."""
    log = Log()
    rows = unfold_samples(list(read_rows(path)))
    for row in fold_rollout(fold_sessions(rows, log.notes), log.notes):
        outcome = _read(row, path, log.notes)
        if isinstance(outcome, Trajectory):
            log.trajectories.append(outcome)
        else:
            log.rejected.append(outcome)
    return log


def _read(row: Row | BadRow, path: Path, notes: Notes) -> Trajectory | Rejected:
    if isinstance(row, BadRow):
        return Rejected(str(path), row.line, "unreadable", row.reason)
    value = {"messages": row.value} if isinstance(row.value, list) else row.value
    if not isinstance(value, dict):
        return Rejected(str(path), row.line, "unknown_shape", f"a JSON {type(value).__name__}, not an object")
    # Of this row alone: a row that is rejected half-way must not leave its notes in the counts.
    own = Notes()
    try:
        trajectory = _translate(_whole_characters(value, own), own)
    except ValueError as error:
        return Rejected(str(path), row.line, "bad_turn", " ".join(str(error).split()))
    except (TypeError, KeyError, AttributeError) as error:
        what = f"a part of another shape than the format's ({type(error).__name__}: {error})"
        return Rejected(str(path), row.line, "bad_turn", what)
    if trajectory is None:
        return _not_a_run(value, path, row.line)
    notes.update(+own)
    return trajectory.model_copy(update={"source": f"{path}:{row.line}"})


def _whole_characters(row: dict, notes: Notes) -> dict:
    """The row with halves of characters replaced, and counted."""
    text = json.dumps(row, ensure_ascii=False)
    num_broken = len(LONE_SURROGATE.findall(text))
    if not num_broken:
        return row
    notes["broken_character"] += num_broken
    return json.loads(whole_characters(text))


def _translate(row: dict, notes: Notes) -> Trajectory | None:
    if {"outcome", "latency_seconds"} <= set(row):
        raise ValueError("one exchange of `condensery capture`; import its conversations.jsonl")
    if "traj" in row:
        return read_tau_bench(row, notes)
    if is_history(row.get("history")):
        return read_swe_agent(row, notes)
    if is_events(row.get("history")):
        return read_openhands(row, notes)
    return read_conversation(row, notes) if turns_of(row) or is_atif(row) else None


def _not_a_run(row: dict, path: Path, line: int) -> Rejected:
    keys = ", ".join(map(str, row)) or "none"
    # Letta's evaluations ask an `input` with a `ground_truth`.
    if isinstance(row.get("question"), str) or {"input", "ground_truth"} <= set(row):
        return Rejected(str(path), line, "question", f"a question without a run (keys {keys})")
    if isinstance(row.get("history"), list):
        keys += "; its history holds events without roles"
    return Rejected(str(path), line, "unknown_shape", f"no list of turns (keys {keys})")


def _nothing_usable(path: Path, rejected: list[Rejected]) -> str:
    if not rejected:
        return f"{path} holds an empty list: no agent run"
    if all(row.reason == "question" for row in rejected):
        return (
            f"{path} is a file of {len(rejected)} questions, not of agent runs; "
            f"`condensery record --questions {path}` records runs, with --explorer, --teacher and --search"
        )
    first = rejected[0]
    if first.line == 0:
        return f"{path}: {first.detail}"
    return (
        f"{path}: no agent run in {len(rejected)} rows; line {first.line}: {first.detail}. Known are chat "
        "messages with tool calls, <think>/<tool_call> text, SWE-agent .traj, SWE-smith, tau-bench, "
        "OpenHands, Claude Code and Codex sessions, LangChain, ATIF and Inspect"
    )
