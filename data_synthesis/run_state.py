"""One rollout between its steps: its trace, what was spent, and how it ends."""

import time
from dataclasses import dataclass

from condensery.context import visible_messages
from condensery.message import Message
from condensery.reply import EndpointError, Reply
from condensery.tokens import RequestCounter, count_tokens
from condensery.trajectory import Termination, Trajectory
from data_synthesis.agent import Agent, Log
from data_synthesis.journal import Journal
from data_synthesis.question import Question


@dataclass(frozen=True)
class Outcome:
    """`error` is set when an endpoint failed the explorer, or the last compaction that was due:
    such a run says nothing about agent or summarizer, and may be repeated.
    """

    trajectory: Trajectory
    error: EndpointError | None = None


class Run:
    """The state of one rollout; `journal` plays back and stores its calls."""

    def __init__(
        self, agent: Agent, question: Question, trajectory: Trajectory, log: Log, stored: list[dict]
    ) -> None:
        self.agent, self.question, self.trajectory = agent, question, trajectory
        self.limits = agent.limits
        self.journal = Journal(self._log_to(log), stored)
        self.counter = RequestCounter(agent.tokenizer, agent.tools.schemas)
        self.rounds = self.last_cut_round = self.ask_again_round = self.problems_in_a_row = 0
        self.num_run_tokens, self.started = 0, time.monotonic()
        self.error: EndpointError | None = None

    def _log_to(self, log: Log) -> Log:
        return lambda row: log(
            {"trajectory_id": self.trajectory.id, "round": self.rounds, "time": time.time()} | row
        )

    def visible(self) -> list[Message]:
        return visible_messages(self.trajectory)

    def num_visible_tokens(self) -> int:
        return self.counter.count(self.visible())

    def spend(self, reply: Reply) -> None:
        """What a call of the explorer read and wrote, as the endpoint counts it, else as we do."""
        written = count_tokens(reply.message.content, self.agent.tokenizer)
        read = self.counter.num_tokens if reply.prompt_tokens is None else reply.prompt_tokens
        self.num_run_tokens += read + (
            written if reply.completion_tokens is None else reply.completion_tokens
        )

    def out_of_budget(self) -> Termination | None:
        limits = self.limits
        if limits.max_run_tokens is not None and self.num_run_tokens >= limits.max_run_tokens:
            return "token_budget"
        if limits.max_run_seconds is not None and time.monotonic() - self.started >= limits.max_run_seconds:
            return "time_limit"
        return None

    def finish(self, ended: Termination) -> Outcome:
        trajectory = self.trajectory
        trajectory.termination = ended
        trajectory.num_tokens = RequestCounter(self.agent.tokenizer, self.agent.tools.schemas).count(
            trajectory.messages
        )
        self.learn_facts()
        return Outcome(trajectory, self.error)

    def learn_facts(self) -> None:
        facts_of, question = self.agent.facts_of, self.question
        if facts_of is None or question.facts is None:
            self.trajectory.facts = question.facts
        else:
            self.trajectory.facts = facts_of(question, self.trajectory.messages)
