"""Who takes part in a rollout, within which limits, and what the model sees after compactions."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from condensery.compaction import Compaction
from condensery.facts import Fact
from condensery.message import Message
from condensery.prompt import escape
from condensery.reply import Reply
from condensery.tokens import Tokenizer
from condensery.trajectory import Cut, Trajectory
from condensery.triggers import token_budget
from data_synthesis.question import Question

Log = Callable[[dict], None]
FactsOf = Callable[[Question, list[Message]], list[Fact]]

# ReSum's q' = (q, s): one user turn that holds the question and the summary of all that went before.
RESUMED = {
    "en": "{task}\n\nThis summary stands for your earlier steps, which are gone. Go on from it:\n{summary}",
    "zh": "{task}\n\n以下摘要代替你此前的步骤（原文已移除），请据此继续：\n{summary}",
}


class Explorer(Protocol):
    """The agent's model. `messages` are exactly what it sees now. Raises EndpointError."""

    async def __call__(self, question: Question, messages: list[Message]) -> Reply: ...


class Summarizer(Protocol):
    async def __call__(self, compaction: Compaction) -> Reply: ...


class Tools(Protocol):
    """`schemas` are in the OpenAI shape; `call` raises ValueError, worded for the model, if it cannot."""

    @property
    def schemas(self) -> list[dict]: ...

    async def call(self, name: str, arguments: str) -> str: ...


@dataclass(frozen=True)
class Limits:
    """ReSum's budget by default: a 32k window, compacted at 0.9 of it, less a reserve; 60 calls of the model.

    `cooldown_rounds`: how long a summarizer that failed twice is not asked again, unless the context is full.
    """

    window_tokens: int = 32 * 1024
    share: float = 0.9
    reserve_tokens: int = 1000
    every_rounds: int | None = None
    max_calls: int = 60
    max_prompt_tokens: int | None = None  # of the summarizer's request
    force_answer: bool = False
    cooldown_rounds: int = 3
    max_problems: int = 3  # unreadable turns in a row

    def __post_init__(self) -> None:
        if self.full_tokens <= 0:
            raise ValueError(
                f"window_tokens is {self.window_tokens}, reserve_tokens {self.reserve_tokens}; "
                "the reserve, for the next answer, must be smaller than the window"
            )

    @property
    def budget_tokens(self) -> int:
        return token_budget(self.window_tokens, self.share, self.reserve_tokens)

    @property
    def full_tokens(self) -> int:
        return self.window_tokens - self.reserve_tokens


@dataclass(frozen=True)
class Agent:
    """`author` names the summarizer in the record; without one (None) nothing is compacted, as in ReAct.

    `facts_of` tells the truth about a run where the web knows it; else the question's own facts are taken.
    """

    explorer: Explorer
    tools: Tools
    summarizer: Summarizer | None = None
    author: str = ""
    prompt_template: str = "full_v1"
    system: str = ""
    tokenizer: Tokenizer | None = None
    limits: Limits = field(default_factory=Limits)
    facts_of: FactsOf | None = None


def visible_messages(trajectory: Trajectory, cuts: Sequence[Cut]) -> list[Message]:
    """What the model sees: everything, or after an accepted cut the head with its summary and the rest."""
    accepted = [cut for cut in cuts if cut.summary is not None]
    if not accepted:
        return list(trajectory.messages)
    *opening, user = trajectory.messages[: trajectory.head]
    form = RESUMED.get(trajectory.language, RESUMED["en"])
    summary = f"<summary>\n{escape(accepted[-1].summary or '')}\n</summary>"
    resumed = user.model_copy(update={"content": form.format(task=user.content, summary=summary)})
    return [*opening, resumed, *trajectory.messages[accepted[-1].position :]]
