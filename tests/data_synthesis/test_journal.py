"""Playing back: a rollout that is made again asks nobody for what stands already, and ends the same."""

import asyncio
import json
from pathlib import Path

import pytest

from condensery.compaction import Compaction
from condensery.files.jsonl import JsonlAppender
from condensery.message import FunctionCall, Message, ToolCall
from condensery.reply import EndpointError, Kind, Reply
from condensery.trajectory import Trajectory
from data_synthesis.agent import Agent, Limits
from data_synthesis.journal import read_journals
from data_synthesis.question import Question
from data_synthesis.rollout import rollout

SCHEMAS: list[dict] = []
QUESTION = Question(id="q", question="When was the mill built?")


class Counted:
    """Explorer, summarizer and tools in one, whose calls are counted; fails at those in `failing`."""

    schemas = SCHEMAS

    def __init__(self, failing: dict[str, Kind] | None = None) -> None:
        self.failing = failing or {}
        self.calls: list[str] = []

    def _count(self, kind: str) -> None:
        self.calls.append(kind)
        number = self.calls.count(kind)
        if f"{kind} {number}" in self.failing:
            raise EndpointError(self.failing[f"{kind} {number}"], "scripted")

    async def explore(self, question: Question, messages: list[Message]) -> Reply:
        self._count("explorer")
        text = "\n".join(message.content for message in messages)
        if "enough" in text:
            return Reply(Message(role="assistant", content="<answer>1843</answer>"))
        number = sum(message.role == "assistant" for message in messages)
        function = FunctionCall(name="search", arguments=json.dumps({"query": f"mill {number}"}))
        call = ToolCall(id=f"call_{number}", function=function)
        return Reply(Message(role="assistant", content="Look.", tool_calls=[call]), prompt_tokens=5)

    async def summarize(self, compaction: Compaction) -> Reply:
        self._count("summary")
        return Reply(Message(role="assistant", content="<summary>Seen enough.</summary>"))

    async def call(self, name: str, arguments: str) -> str:
        self.calls.append("tool")
        if "mill 1" in arguments:
            raise ValueError("no such mill")
        return f"{arguments}: built in 1843 " * 20


def run(agent: Counted, path: Path) -> Trajectory:
    """As the recorder does: rows are appended, those of earlier attempts played back."""
    members = Agent(
        agent.explore, agent, agent.summarize, author="t", limits=Limits(every_rounds=3, cooldown_rounds=1)
    )
    with JsonlAppender(path) as calls:
        stored = read_journals(path, set()).get("t1", [])
        return asyncio.run(rollout(members, QUESTION, "t1", 0, calls.append, stored)).trajectory


@pytest.fixture
def whole(tmp_path: Path) -> tuple[Trajectory, list[bytes]]:
    trajectory = run(Counted(), tmp_path / "whole.jsonl")
    return trajectory, (tmp_path / "whole.jsonl").read_bytes().splitlines(keepends=True)


def test_every_prefix_of_the_calls_leads_to_the_same_run_and_only_the_rest_is_made(
    whole: tuple[Trajectory, list[bytes]], tmp_path: Path
) -> None:
    trajectory, rows = whole
    assert len(rows) == 8 and trajectory.termination == "answer"
    for num_stored in range(len(rows) + 1):
        path = tmp_path / f"{num_stored}.jsonl"
        path.write_bytes(b"".join(rows[:num_stored]) + b'{"torn')
        counted = Counted()
        assert run(counted, path) == trajectory
        assert len(counted.calls) == len(rows) - num_stored
        assert len(path.read_bytes().splitlines()) == len(rows), "nothing is stored twice"


def test_a_failed_call_is_made_again_and_what_an_earlier_attempt_stored_after_it_is_void(
    whole: tuple[Trajectory, list[bytes]], tmp_path: Path
) -> None:
    path = tmp_path / "calls.jsonl"
    assert run(Counted({"summary 1": "server"}), path).cuts[0].failure == "endpoint_error"
    counted = Counted()
    assert run(counted, path) == whole[0]
    assert counted.calls == ["summary", "explorer"]
    again = Counted()
    assert run(again, path) == whole[0] and again.calls == []


def test_a_refused_summary_is_not_asked_for_again(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    refusing = {"summary 1": "context_length", "summary 2": "context_length", "explorer 4": "server"}
    first = run(Counted(dict(refusing)), path)  # type: ignore[arg-type]
    assert first.termination == "endpoint_error"
    counted = Counted()
    assert [cut.failure for cut in run(counted, path).cuts][:2] == ["endpoint_error"] * 2
    assert counted.calls[0] == "explorer", "the explorer's own failure is mended by asking"


def test_calls_of_finished_rollouts_take_no_memory(tmp_path: Path) -> None:
    run(Counted(), tmp_path / "calls.jsonl")
    assert read_journals(tmp_path / "calls.jsonl", {"t1"}) == {}
