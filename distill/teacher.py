"""The teacher of on-policy distillation: what it must share with the student, found before either is loaded.

It scores the student's tokens one by one, so a token must mean the same to both. Its own chat template is
never used: it reads the student's prompts as they are.
"""

from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase

from modeling.loading import base_of, base_revision, load_config, resolve_model


def check_same_vocabulary(
    student: PreTrainedTokenizerBase, teacher: PreTrainedTokenizerBase, names: tuple[str, str]
) -> None:
    """Raises ValueError where a token has another number, or none, on one side. `names`: as in messages."""
    ours, theirs = student.get_vocab(), teacher.get_vocab()
    apart = sorted(token for token in ours.keys() | theirs.keys() if ours.get(token) != theirs.get(token))
    if apart:
        raise ValueError(
            f"the teacher {names[1]} has another vocabulary than the student {names[0]}: {len(apart)} tokens "
            f"differ, e.g. {apart[0]!r} is {ours.get(apart[0])} to the student and {theirs.get(apart[0])} to "
            "the teacher; take a teacher of the student's family, or train on a teacher's summaries "
            "(condensery sft)"
        )


def check_same_head(student: Any, teacher: Any, names: tuple[str, str]) -> None:
    """Two model configs. The size of a head may be padded beyond the vocabulary, to a different number."""
    ours, theirs = student.get_text_config().vocab_size, teacher.get_text_config().vocab_size
    if ours != theirs:
        raise ValueError(
            f"the student {names[0]} has a head of {ours} tokens and the teacher {names[1]} one of {theirs} "
            "(vocab_size in config.json); take a teacher with the student's"
        )


def config_of(name_or_path: str, revision: str | None = None) -> Any:
    """The model config; of an adapter, that of its base."""
    place = resolve_model(name_or_path)
    if (Path(place) / "adapter_config.json").is_file():
        return config_of(base_of(place), base_revision(place))
    return load_config(name_or_path, revision)
