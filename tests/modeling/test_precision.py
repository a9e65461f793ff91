"""A CPU without bf16 instructions computes in float32, in training and where a model is only read."""

import pytest
import torch
from transformers import TrainingArguments

from modeling import precision


@pytest.mark.parametrize("has_bf16", [True, False])
def test_autocast_is_left_where_the_cpu_has_bf16(
    has_bf16: bool, tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(precision, "cpu_has_bf16", lambda: has_bf16)
    training = TrainingArguments(str(tmp_path), use_cpu=True, bf16=True)
    notes = precision.without_slow_bf16(training)
    assert (training.bf16, training.mixed_precision) == ((True, "bf16") if has_bf16 else (False, "no"))
    assert len(notes) == (not has_bf16)
    assert not precision.without_slow_bf16(TrainingArguments(str(tmp_path), use_cpu=True, bf16=False))


def test_models_that_are_only_read_are_held_in_what_is_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(precision, "cpu_has_bf16", lambda: False)
    named = ("auto", "bfloat16", "float16", "float32")
    assert [*map(precision.computed_dtype, named)] == ["float32", "float32", "float16", "float32"]
    monkeypatch.setattr(precision, "cpu_has_bf16", lambda: True)
    assert [*map(precision.computed_dtype, named)] == [*named]
