"""Who takes part in a rollout, and within which limits."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from condensery.compaction import Compaction
from condensery.facts import Fact
from condensery.message import Message
from condensery.reply import Reply
from condensery.tokens import Tokenizer
from condensery.trajectory import Paradigm
from condensery.triggers import token_budget
from data_synthesis.question import Question

Log = Callable[[dict], None]
FactsOf = Callable[[Question, list[Message]], list[Fact]]


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

    `unit_share`: from this share on, ReSum compacts where a research unit closes, too. `newest_share`: what
    of the window Recent History keeps, and observation masking leaves unmasked. `max_run_tokens` counts what
    all calls of the explorer read and wrote. `cooldown_rounds`: how long a summarizer that failed twice is
    not asked again, unless the context is full.
    """

    window_tokens: int = 32 * 1024
    share: float = 0.9
    reserve_tokens: int = 1000
    every_rounds: int | None = None
    unit_share: float | None = None
    newest_share: float = 22 / 32
    max_calls: int = 60
    max_run_tokens: int | None = None
    max_run_seconds: float | None = None
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
    def unit_tokens(self) -> int | None:
        if self.unit_share is None:
            return None
        return token_budget(self.window_tokens, self.unit_share, self.reserve_tokens)

    @property
    def newest_tokens(self) -> int:
        return int(self.newest_share * self.window_tokens)

    @property
    def full_tokens(self) -> int:
        return self.window_tokens - self.reserve_tokens


@dataclass(frozen=True)
class Agent:
    """`author` names the summarizer in the record; without one (None) ReSum is ReAct: nothing is compacted.

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
    paradigm: Paradigm = "resum"
