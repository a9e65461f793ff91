"""The settings of `condensery import`."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from condensery.endpoint import Endpoint, is_url
from condensery.tokens import Tokenizer
from data_synthesis.cutting import Cutting
from data_synthesis.extractive import AUTHOR


@dataclass
class ImportConfig:
    """Which logs, cut how, summarized by whom."""

    paths: list[Path] = field(metadata={"positional": True, "help": "log files, or folders of them"})
    output_dir: Path = field(metadata={"help": "where the run goes"})
    window_tokens: int = field(
        default=16384, metadata={"help": "the agent's window: where it would compact", "minimum": 1}
    )
    max_row_tokens: int | None = field(
        default=None, metadata={"help": "request and summary together; default: the window", "minimum": 1}
    )
    max_summary_tokens: int | None = field(
        default=None, metadata={"help": "default: an eighth of the row, at least 128", "minimum": 1}
    )
    teacher: str = field(
        default=AUTHOR, metadata={"help": f"{AUTHOR} (sentences copied, no model), or an endpoint's URL"}
    )
    teacher_model: str | None = field(default=None, metadata={"help": "the model behind the endpoint"})
    teacher_api_key_env: str = field(
        default="OPENAI_API_KEY", metadata={"help": "environment variable with the teacher's key"}
    )
    teacher_timeout_seconds: float = field(
        default=600.0, metadata={"help": "for one answer, retries included", "minimum": 1}
    )
    teacher_max_tokens: int = field(
        default=4096, metadata={"help": "of its answers, reasoning included", "minimum": 1}
    )
    prompt_template: str = field(default="compact_v1", metadata={"help": "a name, or the path of a file"})
    tokenizer: str | None = field(
        default=None, metadata={"help": "the student, whose tokens are counted; default: an estimate"}
    )
    limit: int | None = field(default=None, metadata={"help": "only the first trajectories", "minimum": 1})
    concurrency: int = field(default=16, metadata={"help": "trajectories in work at once", "minimum": 1})
    on_error: Literal["fail", "skip"] = field(
        default="fail", metadata={"help": "skip: exit with 0 although rows were rejected"}
    )
    resume: bool = field(default=False, metadata={"help": "go on with a run that was interrupted"})
    dry_run: bool = field(default=False, metadata={"help": "read the logs and say what is in them"})

    def __post_init__(self) -> None:
        row = self.max_row_tokens or self.window_tokens
        summary = self.max_summary_tokens or max(128, row // 8)
        if row < 2 * summary:
            raise ValueError(
                f"a row of {row} tokens has no room for a summary of {summary}; raise --max_row_tokens"
            )
        if self.teacher != AUTHOR and not (is_url(self.teacher) and self.teacher_model):
            raise ValueError(f"--teacher is {AUTHOR!r} or the URL of an endpoint, with --teacher_model")

    def cutting(self, tokenizer: Tokenizer | None) -> Cutting:
        row = self.max_row_tokens or self.window_tokens
        summary = self.max_summary_tokens or max(128, row // 8)
        return Cutting(self.window_tokens, row, summary, self.prompt_template, tokenizer)

    def endpoint(self) -> Endpoint | None:
        """The teacher's, or None. A new one each time: a client belongs to one event loop."""
        if self.teacher == AUTHOR:
            return None
        return Endpoint(
            self.teacher,
            self.teacher_model or "",
            api_key_env=self.teacher_api_key_env,
            timeout_seconds=self.teacher_timeout_seconds,
            max_concurrency=self.concurrency,
            sampling={"max_tokens": self.teacher_max_tokens},
        )
