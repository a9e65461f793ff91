"""The fields of `condensery evaluate`, checked before anything is loaded."""

import dataclasses
from pathlib import Path

from condensery.prompt import load_template


@dataclasses.dataclass
class EvaluateConfig:
    """`compactions` are files, `name=path` makes a slice; `pairs` hold the teacher's answers."""

    compactions: list[str]
    output_dir: str
    pairs: list[str] = dataclasses.field(default_factory=list)
    base: str | None = None
    trained: str | None = None
    log_history: str | None = None  # log_history.json of the training run, for its loss curve
    prompt_template: str = "compact_v1"
    max_new_tokens: int = 128
    batch_size: int = 8
    dtype: str = "auto"
    limit: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.base and not self.trained:
            raise ValueError("nothing to compare: give --base and --trained, each a model name or folder")
        load_template(self.prompt_template)
        for entry in [*self.compactions, *self.pairs, *filter(None, [self.log_history])]:
            if not Path(entry.rpartition("=")[2]).is_file():
                raise ValueError(f"no file {entry.rpartition('=')[2]}")
