"""ReSum (arXiv 2509.13313): when the context fills, an external summarizer writes s, the working history
becomes the one user turn (q, s), and exploration goes on.

A compaction is a transaction. The trace is never rewritten: an accepted summary adds a cut, a failed one adds
a typed failure and leaves what the model sees byte for byte as it was.
"""

import time
from dataclasses import dataclass

from condensery.message import Message, closed_positions
from condensery.reply import REFUSALS, EndpointError, Reply
from condensery.tokens import RequestCounter
from condensery.trajectory import Termination, Trajectory
from condensery.triggers import compaction_due
from data_synthesis.agent import Agent, Log, visible_messages
from data_synthesis.importers.text_protocol import last_answer
from data_synthesis.question import Question
from data_synthesis.summarizer import ask_summary, costs, error_row

LAST_CALL = "This is your last turn: no tool can be called any more. Give your final answer now."
NO_TURN = "Your last turn held neither a tool call nor an answer. Call a tool, or give your answer."
CUT_TURN = "Your last turn was cut off before it ended. Be brief: call a tool, or give your answer."


@dataclass(frozen=True)
class Outcome:
    """`error` is set when an endpoint failed the explorer, or the last compaction that was due:
    such a run says nothing about agent or summarizer, and may be repeated.
    """

    trajectory: Trajectory
    error: EndpointError | None = None


async def rollout(
    agent: Agent, question: Question, trajectory_id: str = "", number: int = 0, log: Log | None = None
) -> Outcome:
    """One run. `log` gets a row for every call of a model and every tool call that failed."""
    run = _Run(
        agent, question, open_trajectory(agent, question, trajectory_id, number), log or (lambda row: None)
    )
    limits = agent.limits
    for round_number in range(limits.max_calls):
        run.rounds = round_number
        ended = await run.make_room()
        if ended:
            return run.finish(ended)
        if limits.force_answer and round_number == limits.max_calls - 1:
            run.trajectory.messages.append(Message(role="user", content=LAST_CALL))
        try:
            reply = await agent.explorer(question, run.visible())
        except EndpointError as error:
            run.record({"kind": "explorer"} | error_row(error))
            run.error = error
            return run.finish("endpoint_error")
        run.record({"kind": "explorer"} | costs(reply))
        ended = await run.take_turn(reply)
        if ended:
            return run.finish(ended)
    return run.finish("call_limit")


def open_trajectory(agent: Agent, question: Question, trajectory_id: str, number: int) -> Trajectory:
    """A run before its first call: the system turn, if there is one, and the question."""
    trajectory = Trajectory(
        id=trajectory_id,
        question_id=question.id,
        rollout=number,
        question=question.question,
        constraints=question.constraints,
        language=question.language,
        answer=question.answer,
        head=2 if agent.system else 1,
        messages=[Message(role="system", content=agent.system)] if agent.system else [],
        source="rollout",
    )
    trajectory.messages.append(Message(role="user", content=trajectory.task))
    return trajectory


class _Run:
    """The state of one rollout between its steps; each step returns how the run ended, or None to go on."""

    def __init__(self, agent: Agent, question: Question, trajectory: Trajectory, log: Log) -> None:
        self.agent, self.question, self.trajectory, self.log = agent, question, trajectory, log
        self.counter = RequestCounter(agent.tokenizer, agent.tools.schemas)
        self.rounds = self.last_cut_round = self.ask_again_round = self.problems_in_a_row = 0
        self.error: EndpointError | None = None

    def visible(self) -> list[Message]:
        return visible_messages(self.trajectory, self.trajectory.cuts)

    def record(self, row: dict) -> None:
        self.log({"trajectory_id": self.trajectory.id, "round": self.rounds, "time": time.time()} | row)

    def finish(self, ended: Termination) -> Outcome:
        trajectory = self.trajectory
        trajectory.termination = ended
        trajectory.num_tokens = RequestCounter(self.agent.tokenizer, self.agent.tools.schemas).count(
            trajectory.messages
        )
        self._learn_facts()
        return Outcome(trajectory, self.error)

    def _learn_facts(self) -> None:
        facts_of, question = self.agent.facts_of, self.question
        if facts_of is None or question.facts is None:
            self.trajectory.facts = question.facts
        else:
            self.trajectory.facts = facts_of(question, self.trajectory.messages)

    async def make_room(self) -> Termination | None:
        """Compact when due. A full context that cannot be compacted ends the run: it never grows on."""
        limits, cuts = self.agent.limits, self.trajectory.cuts
        num_tokens = self.counter.count(self.visible())
        is_full = num_tokens >= limits.full_tokens
        rounds_since = self.rounds - self.last_cut_round
        if not compaction_due(num_tokens, limits.budget_tokens, rounds_since, limits.every_rounds):
            return None
        # A cut inside an open call would leave an orphan that no chat template renders.
        start = max([self.trajectory.head, *(cut.position for cut in cuts if cut.summary is not None)])
        position = closed_positions(self.trajectory.messages)[-1]
        if self.agent.summarizer is None or position <= start:
            return "token_limit" if is_full else None
        # A summarizer that has just failed twice is left alone for a while, unless there is no room to wait.
        if self.rounds < self.ask_again_round and not is_full:
            return None
        if not await self._compact(position, num_tokens):
            self.ask_again_round = self.rounds + limits.cooldown_rounds
            return "summary_failed" if is_full else None
        self.last_cut_round = self.rounds
        num_left = self.counter.count(self.visible())
        if num_left >= limits.budget_tokens:  # accepted, but the next round would ask again
            self.ask_again_round = self.rounds + limits.cooldown_rounds
        return "token_limit" if num_left >= limits.full_tokens else None

    async def _compact(self, position: int, num_tokens: int) -> bool:
        """Ask for a summary of all that expired, once more if it fails. Every answer is recorded as a cut."""
        self._learn_facts()
        for _ in range(2):
            cut, error = await ask_summary(self.agent, self.trajectory, position, num_tokens, self.record)
            # Who refuses this request will refuse it again: repeating the run would bring nothing.
            self.error = None if error and error.kind in REFUSALS else error
            self.trajectory.cuts.append(cut)
            if cut.summary is not None:
                return True
        return False

    async def take_turn(self, reply: Reply) -> Termination | None:
        """Put the model's turn into the trace and carry out its calls; without any, it is the answer."""
        messages, message = self.trajectory.messages, reply.message
        messages.append(message)
        # Every call gets its result, also beside an unreadable one: histories are cut where none is open.
        for call in message.tool_calls:
            text = await self._call_tool(call.function.name, call.function.arguments)
            messages.append(Message(role="tool", content=text, tool_call_id=call.id))
        problem = reply.problem or (None if message.tool_calls else _problem_in(reply))
        self.problems_in_a_row = self.problems_in_a_row + 1 if problem else 0
        if problem:
            self.record({"kind": "unparsable_call", "detail": problem})
            if self.problems_in_a_row >= self.agent.limits.max_problems:
                return "unparsable_call"
            messages.append(Message(role="user", content=problem))
            return None
        if message.tool_calls:
            return None
        self.trajectory.prediction = last_answer(messages) or message.content.strip()
        return "answer"

    async def _call_tool(self, name: str, arguments: str) -> str:
        """The tool's text, or why it cannot be had: the model can mend its call."""
        try:
            return await self.agent.tools.call(name, arguments)
        except (ValueError, OSError) as error:
            self.record({"kind": "tool_error", "detail": str(error)})
            return f"Error: {error}"


def _problem_in(reply: Reply) -> str | None:
    if reply.finish_reason == "length":
        return CUT_TURN
    return None if reply.message.content.strip() else NO_TURN
