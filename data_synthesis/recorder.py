"""Recording rollouts so that a kill at any moment loses no finished one, and `--resume` repeats none.

A finished rollout is one row of `trajectories.jsonl`, written at once. A rollout that an endpoint failed is a
row of `rejected.jsonl`; it is run again on resume, and the new outcome supersedes that row. At the end,
`compactions.jsonl` is derived from the trajectories. Calls, with clock times, go to `calls.jsonl`, from which
an unfinished rollout is played back on resume, so that nothing is paid for twice.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

from condensery.compaction import compactions_of
from condensery.files.jsonl import (
    BadLine,
    JsonlAppender,
    read_jsonl,
    read_records,
    scan_jsonl,
    write_jsonl,
)
from condensery.trajectory import Trajectory, content_id
from data_synthesis.agent import Agent, Log
from data_synthesis.journal import read_journals
from data_synthesis.question import Question, question_from_row
from data_synthesis.rollout import rollout
from data_synthesis.run_state import Outcome


@dataclass(frozen=True)
class Job:
    """One rollout to make; `id` is that of its trajectory."""

    id: str
    question: Question
    number: int


# Makes a rollout: its calls go to the log, those that stand already are played back.
Make = Callable[[Job, Log, list[dict]], Awaitable[Outcome]]


def make_here(agent: Agent) -> Make:
    """Rollouts in this process."""

    async def make(job: Job, log: Log, stored: list[dict]) -> Outcome:
        return await rollout(agent, job.question, job.id, job.number, log, stored)

    return make


def read_questions(path: Path) -> tuple[list[Question], list[dict]]:
    """(questions, rejected rows with file, line and reason) of a question file."""
    questions: list[Question] = []
    rejected: list[dict] = []
    line_of: dict[str, int] = {}
    for line, row in scan_jsonl(path):
        question = _read_question(row)
        if isinstance(question, Question) and question.id in line_of:
            question = f"question id {question.id!r} stands in line {line_of[question.id]} already"
        if isinstance(question, Question):
            line_of[question.id] = line
            questions.append(question)
        else:
            rejected.append({"file": str(path), "line": line, "reason": question})
    return questions, rejected


def _read_question(row: dict | BadLine) -> Question | str:
    if isinstance(row, BadLine):
        return row.reason
    try:
        return question_from_row(row)
    except ValueError as error:
        return " ".join(str(error).split())


def plan_jobs(questions: Iterable[Question], num_rollouts: int, identity: dict) -> list[Job]:
    """All rollouts, the first of each question first. `identity` is what shapes a rollout."""
    questions = list(questions)
    return [
        Job(
            content_id({"config": identity, "question": question.model_dump(), "rollout": number}),
            question,
            number,
        )
        for number in range(num_rollouts)
        for question in questions
    ]


async def record(
    make: Make, jobs: list[Job], directory: Path, rejected_questions: list[dict], concurrency: int
) -> None:
    """Make the rollouts that are not finished yet, `concurrency` at a time."""
    with JsonlAppender(directory / "trajectories.jsonl") as trajectories:
        done = {run.id for run in read_trajectories(directory)}
        todo = [job for job in jobs if job.id not in done]
        # Failed rollouts are run again now, so that only failures of this attempt may stand in the file.
        write_jsonl(directory / "rejected.jsonl", rejected_questions)
        await _run_jobs(make, todo, done, directory, concurrency, trajectories)
    write_jsonl(directory / "compactions.jsonl", _compaction_rows(directory))


async def _run_jobs(
    make: Make,
    jobs: list[Job],
    done: set[str],
    directory: Path,
    concurrency: int,
    trajectories: JsonlAppender,
) -> None:
    todo = iter(jobs)
    with (
        JsonlAppender(directory / "rejected.jsonl") as rejected,
        JsonlAppender(directory / "calls.jsonl") as calls,
        tqdm(total=len(jobs), desc="rollouts", unit="run", disable=None) as progress,
    ):
        journals = read_journals(directory / "calls.jsonl", done)

        async def work() -> None:
            for job in todo:  # one iterator, shared by all workers
                outcome = await make(job, calls.append, journals.pop(job.id, []))
                if outcome.error is None:
                    trajectories.append(outcome.trajectory.model_dump())
                else:
                    role = "explorer" if outcome.trajectory.termination == "endpoint_error" else "summarizer"
                    rejected.append(_rejection(job, f"{role}: {outcome.error.kind}", outcome.error.detail))
                progress.update()

        await asyncio.gather(*(work() for _ in range(concurrency)))


def _rejection(job: Job, reason: str, detail: str) -> dict:
    question = job.question.id
    return {"id": job.id, "question_id": question, "rollout": job.number, "reason": reason, "detail": detail}


def read_trajectories(directory: Path) -> Iterator[Trajectory]:
    return read_records(directory / "trajectories.jsonl", Trajectory)


def _compaction_rows(directory: Path) -> Iterator[dict]:
    """One row a request: the retry of a failed summary asks the same again."""
    for trajectory in read_trajectories(directory):
        yield from {item.id: item.model_dump() for item in compactions_of(trajectory)}.values()


def count_outcomes(directory: Path) -> dict[str, Counter[str]]:
    """How the recorded runs ended, what failed in them, and why others were not used."""
    ended, failures, rejected = Counter[str](), Counter[str](), Counter[str]()
    for trajectory in read_trajectories(directory):
        ended[trajectory.termination] += 1
        failures.update(f"summary {cut.failure}" for cut in trajectory.cuts if cut.failure)
        failures["accepted summaries"] += sum(cut.summary is not None for cut in trajectory.cuts)
        for message in trajectory.messages[trajectory.head :]:
            failures["tool errors"] += message.role == "tool" and message.content.startswith("Error: ")
            failures["corrected turns"] += message.role == "user"
    for row in read_jsonl(directory / "rejected.jsonl"):
        rejected[row["reason"]] += 1
    return {"rollouts": ended, "events": +failures, "rejected": rejected}
