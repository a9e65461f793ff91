from pathlib import Path

import pytest
import torch

from modeling.checkpoints import check_finite, newest_complete_checkpoint, remove_torn_checkpoints


def test_half_written_checkpoints_are_never_resumed_from(tmp_path: Path) -> None:
    states = {
        "checkpoint-9": '{"global_step": 9}',
        "checkpoint-10": '{"global_step": 10}',
        "checkpoint-20": '{"glo',
    }
    for name, state in states.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "trainer_state.json").write_text(state)
    (tmp_path / "checkpoint-30").mkdir()
    assert newest_complete_checkpoint(tmp_path) == tmp_path / "checkpoint-10"
    assert {folder.name for folder in remove_torn_checkpoints(tmp_path)} == {"checkpoint-20", "checkpoint-30"}


def test_weights_that_are_not_finite_are_named() -> None:
    layer = torch.nn.Linear(2, 2)
    check_finite(layer)
    layer.bias.data[0] = float("nan")
    with pytest.raises(ValueError, match="bias"):
        check_finite(layer)
