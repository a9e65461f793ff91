"""The fields of `condensery evaluate`, checked before anything is loaded."""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from pydantic import BaseModel

from condensery.files.export_card import NAME as CARD
from condensery.files.export_card import PromptTemplate, read_export_card
from condensery.files.jsonl import parse_json, to_record
from condensery.prompt import load_template, template_files, template_names

# What tells one local model folder from another: whole weights would take minutes to read.
MODEL_CARDS = (CARD, "run.json", "config.json", "adapter_config.json")


@dataclass
class EvaluateConfig:
    """`compactions` are files, `name=path` makes a slice; `pairs` hold the teacher's answers."""

    compactions: list[str] = field(metadata={"help": "held-out compactions; NAME=FILE makes a slice"})
    output_dir: Path = field(metadata={"help": "where answers, report and plots go"})
    pairs: list[str] = field(
        default_factory=list, metadata={"help": "their pairs, for the teacher's summaries"}
    )
    base: str | None = field(
        default=None, metadata={"help": "the model before training: a hub name or a folder"}
    )
    trained: str | None = field(default=None, metadata={"help": "the model after it: a run or an export"})
    log_history: Path | None = field(
        default=None, metadata={"help": "log_history.json of the training run, for its loss curve"}
    )
    prompt_template: str = field(
        default="",
        metadata={"help": "name or file; default: the one the export was trained on, or compact_v1"},
    )
    max_new_tokens: int = field(
        default=128, metadata={"help": "budget of an answer, thinking included", "minimum": 1}
    )
    batch_size: int = field(default=8, metadata={"help": "prompts answered at once", "minimum": 1})
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = field(
        default="auto",
        metadata={
            "help": "precision of the weights; auto: as they are stored, or float32 on a CPU without bf16"
        },
    )
    seed: int = field(default=0, metadata={"help": "of the bootstrap"})
    limit: int | None = field(
        default=None, metadata={"help": "only the first rows of each file", "minimum": 1}
    )
    dry_run: bool = field(
        default=False, metadata={"help": "read all files, say what would be asked, and stop"}
    )
    resume: bool = field(default=False, metadata={"help": "go on with the run in output_dir"})

    def __post_init__(self) -> None:
        if not self.base and not self.trained:
            raise ValueError("nothing to compare: give --base and --trained, each a model name or folder")
        trained_on = template_of_export(self.trained)
        if not self.prompt_template and trained_on and trained_on.name not in template_names():
            raise ValueError(
                f"{self.trained} was trained on the prompt template {trained_on.name!r}; "
                "give its file with --prompt_template"
            )
        self.prompt_template = self.prompt_template or (trained_on.name if trained_on else "compact_v1")
        _, text = load_template(self.prompt_template)
        if trained_on and text != trained_on.text:
            print(
                f"warning: {self.trained} was trained on {trained_on.name}, not on {self.prompt_template}",
                file=sys.stderr,
            )
        for path in self.data_files():
            if not path.is_file():
                raise ValueError(f"no file {path}")
        if self.log_history:
            read_log_history(self.log_history)

    def data_files(self) -> list[Path]:
        """Compactions without their slice names, and pairs."""
        return [Path(entry.rpartition("=")[2]) for entry in self.compactions + self.pairs]

    def inputs(self) -> list[Path]:
        """All files that shape the answers: data, a prompt template of the user's, models in folders."""
        folders = [Path(name) for name in (self.base, self.trained) if name]
        cards = [folder / name for folder in folders for name in MODEL_CARDS if (folder / name).is_file()]
        return self.data_files() + template_files(self.prompt_template) + cards


def template_of_export(folder: str | None) -> PromptTemplate | None:
    """The prompt template that an export was trained on; None for anything else."""
    is_export = folder is not None and (Path(folder) / CARD).is_file()
    return read_export_card(Path(folder)).prompt_template if is_export and folder else None


class LoggedStep(BaseModel):
    """An entry of the Trainer's log; those at the end of a run have neither loss."""

    step: int
    loss: float | None = None
    eval_loss: float | None = None


def read_log_history(path: Path) -> list[LoggedStep]:
    """The losses of a training run by step. Raises ValueError for a file that holds none."""
    try:
        entries = parse_json(path.read_bytes())
        if not isinstance(entries, list):
            raise ValueError("no list of logged steps")
        return [to_record(entry, LoggedStep) for entry in entries]
    except (OSError, ValueError) as error:
        raise ValueError(
            f"--log_history {path}: {error}; `condensery sft` writes log_history.json when it is done"
        ) from error
