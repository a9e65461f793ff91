"""Two processes train what one does: with whole copies (DDP) and with shards (FSDP2), over gloo on a CPU."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from distill import sft
from tests.distill.tiny_runs import losses, refusal
from tests.two_processes import DDP, FSDP2, launch, on_two_processes

Words = Callable[..., list[str]]
# Four rows a step: 1 per device x 2 processes x 2 accumulated. SGD keeps rounding as small as it is.
SETTINGS = ["--global_batch_size", "4", "--max_steps", "3", "--router_aux_loss_coef", "0", "--optim", "sgd"]


def assert_same_training(one: Path, two: Path) -> None:
    """Losses within 1e-5, weights within 1e-6: of a model, or of an adapter."""
    assert len(losses(one)) == 3 and losses(two) == pytest.approx(losses(one), abs=1e-5)
    (file,) = one.glob("*.safetensors")
    expected, trained = load_file(file), load_file(two / file.name)
    assert expected.keys() <= trained.keys()
    for name, weight in expected.items():
        assert torch.allclose(trained[name], weight, atol=1e-6, rtol=0), name


@pytest.mark.slow
@pytest.mark.parametrize("model", ["tiny_llama", "tiny_qwen3_moe"])
def test_two_processes_with_whole_copies_equal_one(
    model: str, request: pytest.FixtureRequest, sft_words: Words, pairs_file: Path, tmp_path: Path
) -> None:
    folder = request.getfixturevalue(model)
    words = [
        sft_words("smollm2_cpu.yaml", folder, pairs_file, tmp_path / name, *SETTINGS) for name in ("1", "2")
    ]
    assert sft.main(words[0]) == 0
    assert "1 per device x 2 process(es) x 2 accumulated" in launch(DDP, "distill/sft.py", words[1])
    assert_same_training(tmp_path / "1", tmp_path / "2")


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["dense", "experts", "joined", "lora"])
def test_two_processes_with_shards_equal_one(
    variant: str,
    request: pytest.FixtureRequest,
    sft_words: Words,
    lora_on_experts: list[str],
    pairs_file: Path,
    tmp_path: Path,
) -> None:
    """accelerate's FSDP2 with the shipped settings; float32, as there is no rounding to tell apart then."""
    folder = request.getfixturevalue("tiny_llama" if variant == "dense" else "tiny_qwen3_moe")
    joined = ["--padding_free", "--per_device_train_batch_size", "2"]
    more = {"joined": joined, "lora": lora_on_experts}.get(variant, [])
    words = [
        sft_words("smollm2_cpu.yaml", folder, pairs_file, tmp_path / name, *SETTINGS, *more)
        for name in ("1", "2")
    ]
    assert sft.main(words[0]) == 0
    said = launch(FSDP2, "tests/distill/sharded_sft.py", words[1])
    num_tensors = {"dense": 20, "lora": 41}.get(variant, 25)
    assert f"FSDP: {num_tensors} of {num_tensors} tensors sharded over 2 processes" in said
    assert_same_training(tmp_path / "1", tmp_path / "2")


@pytest.mark.slow
def test_what_watches_a_run_sees_all_shards(tiny_qwen3_moe: Path) -> None:
    on_two_processes(
        *("torch.distributed.run", "--standalone", "--nproc_per_node", "2"),
        *("tests/distill/sharded_checks.py", str(tiny_qwen3_moe)),
    )


def test_fsdp_that_does_not_shard_is_refused(
    sft_words: Words,
    tiny_llama: Path,
    pairs_file: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    assert "nothing is sharded" in refusal(
        sft.main, sft_words("smollm2_cpu.yaml", tiny_llama, pairs_file, tmp_path / "run"), capsys
    )
    assert not (tmp_path / "run").exists()
