"""The fields of `condensery record`, checked before anything is started."""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from condensery.endpoint import Endpoint, is_url
from condensery.prompt import load_template
from condensery.trajectory import Paradigm
from data_synthesis.agent import Limits
from data_synthesis.tools.tool_config import ToolConfig

# What does not shape a rollout: places, and how many are made at once or in all.
OUTSIDE_IDENTITY = {
    *("questions", "web", "output_dir", "explorer", "teacher", "explorer_api_key_env", "teacher_api_key_env"),
    *("timeout_seconds", "concurrency", "executor", "num_workers"),
    *("rollouts", "limit", "dry_run", "resume", "on_error"),
    *("corpus", "search_url", "reader", "reader_api_key_env", "tool_cache", "requests_per_second"),
    "tool_timeout_seconds",
}


@dataclass(kw_only=True)
class RecordConfig(ToolConfig):
    """`scripted` and `oracle` need an offline web and no model; endpoints can take their places."""

    questions: Path = field(metadata={"help": "a question file (JSONL), or the directory of a generated web"})
    output_dir: Path = field(metadata={"help": "where the run goes"})
    web: Path | None = field(
        default=None, metadata={"help": "the web for search and visit (default: the questions' directory)"}
    )
    explorer: str = field(default="scripted", metadata={"help": "scripted, or the URL of an endpoint"})
    explorer_model: str | None = field(default=None, metadata={"help": "the model name at that endpoint"})
    explorer_protocol: Literal["tools", "text"] = field(
        default="tools", metadata={"help": "tool_calls, or <tool_call> in the text"}
    )
    explorer_api_key_env: str = field(
        default="OPENAI_API_KEY", metadata={"help": "environment variable with the key"}
    )
    teacher: str = field(default="oracle", metadata={"help": "oracle, or the URL of an endpoint"})
    teacher_model: str | None = field(default=None, metadata={"help": "the model name at that endpoint"})
    teacher_window_tokens: int | None = field(
        default=None, metadata={"help": "longer requests are excerpted, marked and counted"}
    )
    teacher_api_key_env: str = field(
        default="OPENAI_API_KEY", metadata={"help": "environment variable with the key"}
    )
    search_results: int = field(default=3, metadata={"help": "pages that a search shows", "minimum": 1})
    snippet_sentences: int = field(
        default=2, metadata={"help": "sentences that a search shows of a page", "minimum": 1}
    )
    rollouts: int = field(default=1, metadata={"help": "rollouts for each question", "minimum": 1})
    window_tokens: int = field(default=32 * 1024, metadata={"help": "the explorer's context window"})
    share: float = field(
        default=0.9, metadata={"help": "compact when this share of the window (less the reserve) is full"}
    )
    reserve_tokens: int = field(
        default=1000, metadata={"help": "kept free for the next answer", "minimum": 0}
    )
    every_rounds: int | None = field(
        default=None, metadata={"help": "compact every so many rounds, too", "minimum": 1}
    )
    unit_share: float | None = field(
        default=None,
        metadata={"help": "from this share on, compact where a research unit closes, too (below --share)"},
    )
    paradigm: Paradigm = field(
        default="resum", metadata={"help": "how the agent keeps within its window (ReSum's comparison)"}
    )
    newest_share: float = field(
        default=22 / 32, metadata={"help": "of the window, what recent keeps and masking leaves unmasked"}
    )
    max_calls: int = field(
        default=60, metadata={"help": "calls of the explorer's model in one rollout", "minimum": 1}
    )
    max_run_tokens: int | None = field(
        default=None, metadata={"help": "read and written by the explorer in one rollout", "minimum": 1}
    )
    max_run_seconds: float | None = field(
        default=None, metadata={"help": "for one rollout; not counted across a resume", "minimum": 1}
    )
    force_answer: bool = field(
        default=False, metadata={"help": "tell the explorer when its last call has come"}
    )
    prompt_template: str = field(
        default="full_v1", metadata={"help": "name or file of the summarizer's prompt template"}
    )
    tokenizer: str | None = field(
        default=None, metadata={"help": "counts tokens (default: an estimate that leans high)"}
    )
    temperature: float = field(default=0.6, metadata={"help": "of explorer and teacher", "minimum": 0})
    top_p: float = field(default=0.95, metadata={"help": "of explorer and teacher", "minimum": 0})
    max_turn_tokens: int | None = field(
        default=None, metadata={"help": "budget of one turn of the explorer", "minimum": 1}
    )
    max_summary_tokens: int = field(
        default=4096, metadata={"help": "budget of the teacher's answer", "minimum": 1}
    )
    timeout_seconds: float = field(
        default=600.0, metadata={"help": "for one call, retries included", "minimum": 1}
    )
    concurrency: int = field(default=8, metadata={"help": "rollouts at a time", "minimum": 1})
    executor: Literal["local", "ray"] = field(
        default="local", metadata={"help": "ray: on a Ray cluster (RAY_ADDRESS), or on workers started here"}
    )
    num_workers: int = field(default=2, metadata={"help": "Ray's, one CPU each", "minimum": 1})
    seed: int = field(
        default=0, metadata={"help": "a name for this sample: another seed gives other rollouts other ids"}
    )
    limit: int | None = field(default=None, metadata={"help": "use the first questions only", "minimum": 1})
    dry_run: bool = field(default=False, metadata={"help": "say what would be run, and stop"})
    resume: bool = field(default=False, metadata={"help": "go on with the run in output_dir"})
    on_error: Literal["fail", "skip"] = field(
        default="fail", metadata={"help": "exit status when rows were rejected: fail=1, skip=0"}
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.share <= 1:
            raise ValueError(f"share is {self.share:g}; it is a share of the window, above 0 and at most 1")
        if not 0 < self.newest_share < 1:
            raise ValueError(f"newest_share is {self.newest_share:g}; it is a share, above 0 and below 1")
        if self.unit_share is not None and not 0 < self.unit_share < self.share:
            raise ValueError(
                f"unit_share is {self.unit_share:g}; it is above 0 and below share ({self.share:g})"
            )
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p is {self.top_p:g}; it is above 0 and at most 1")
        self.limits()
        load_template(self.prompt_template)
        for role, offline in ("explorer", "scripted"), ("teacher", "oracle"):
            given, model = vars(self)[role], vars(self)[f"{role}_model"]
            if given != offline and not is_url(given):
                raise ValueError(
                    f"{role} is {given!r}; use {offline}, or the URL of an endpoint (http://...)"
                )
            if given != offline and not model:
                raise ValueError(f"{role}_model is missing; name the model at {given}")
        window = self.teacher_window_tokens
        if window is not None and window <= self.max_summary_tokens:
            raise ValueError(
                f"teacher_window_tokens is {window} and max_summary_tokens {self.max_summary_tokens}; "
                "the window holds the request and the summary"
            )
        if self.search != "web" and (self.explorer == "scripted" or self.teacher == "oracle"):
            raise ValueError(
                f"--search {self.search} needs an explorer and a teacher behind endpoints; "
                "the scripted ones know the offline web only"
            )
        if self.search == "web" and self.web is None and self.questions.is_dir():
            self.web = self.questions

    def limits(self) -> Limits:
        window = self.teacher_window_tokens
        return Limits(
            window_tokens=self.window_tokens,
            share=self.share,
            reserve_tokens=self.reserve_tokens,
            every_rounds=self.every_rounds,
            unit_share=self.unit_share,
            newest_share=self.newest_share,
            max_run_tokens=self.max_run_tokens,
            max_run_seconds=self.max_run_seconds,
            max_calls=self.max_calls,
            max_prompt_tokens=window - self.max_summary_tokens if window else None,
            force_answer=self.force_answer,
        )

    def identity(self) -> dict:
        """What shapes a rollout, and so goes into the ids of its trajectories."""
        kinds = {"explorer": self.explorer == "scripted", "teacher": self.teacher == "oracle"}
        text = {"prompt_template": load_template(self.prompt_template)[1]}
        return {k: v for k, v in asdict(self).items() if k not in OUTSIDE_IDENTITY} | kinds | text

    def endpoint(self, role: Literal["explorer", "teacher", "reader"], **sampling: Any) -> Endpoint:
        settings = vars(self)
        return Endpoint(
            settings[role],
            settings[f"{role}_model"],
            api_key_env=settings[f"{role}_api_key_env"],
            timeout_seconds=self.timeout_seconds,
            max_concurrency=self.concurrency,
            sampling={"temperature": self.temperature, "top_p": self.top_p} | sampling,
        )
