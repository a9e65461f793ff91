"""An export is the trained model, stands alone, and is refused when it is not."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from distill import export, sft
from distill.proof import Proof, compare, fixed_logprobs, fixed_pairs
from modeling.generation import generate
from modeling.loading import load_model, load_model_and_tokenizer, load_tokenizer

Words = Callable[..., list[str]]


@pytest.fixture(scope="module")
def lora_run(
    sft_words: Words,
    lora_on_experts: list[str],
    tiny_qwen3_moe: Path,
    pairs_file: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """Two steps of LoRA on attention and experts of a tiny mixture."""
    folder = tmp_path_factory.mktemp("lora") / "run"
    words = sft_words("qwen3_30b_a3b.yaml", tiny_qwen3_moe, pairs_file, folder, *lora_on_experts)
    assert sft.main(words) == 0
    return folder


def test_merged_export_equals_the_adapter_and_stands_alone(lora_run: Path, tmp_path: Path) -> None:
    """The expert deltas too: all 3 targets of both layers and both projections changed."""
    folder = tmp_path / "export"
    assert export.main(["--checkpoint", str(lora_run), "--output_dir", str(folder)]) == 0
    card = json.loads((folder / "condensery.json").read_text())
    assert (
        card["proof"]["num_changed_tensors"] == card["proof"]["num_expected_tensors"] == 8
        and card["proof"]["max_drift"] < 1e-4
    )
    assert (
        card["prompt_template"]["name"] == "compact_v1" and "{{ history }}" in card["prompt_template"]["text"]
    )
    adapter = load_model(str(lora_run), "float32")
    merged, tokenizer = load_model_and_tokenizer(str(folder))
    pairs = fixed_pairs(tokenizer, "none")
    torch.testing.assert_close(
        fixed_logprobs(adapter, pairs), fixed_logprobs(merged, pairs), atol=1e-5, rtol=0
    )
    [answer] = generate(merged, tokenizer, [[{"role": "user", "content": "hello"}]], max_new_tokens=3)
    assert answer.num_tokens == 3
    assert {file.stat().st_mode for file in folder.iterdir()} == {(folder / "condensery.json").stat().st_mode}


def test_export_that_equals_its_base_is_an_error_and_leaves_nothing(
    lora_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The adapter is emptied behind the run's back, as a key mismatch would do."""
    from safetensors.torch import load_file, save_file

    run = tmp_path / "run"
    run.mkdir()
    for path in lora_run.iterdir():
        if path.is_file():
            (run / path.name).write_bytes(path.read_bytes())
    weights = {name: tensor * 0 for name, tensor in load_file(run / "adapter_model.safetensors").items()}
    save_file(weights, run / "adapter_model.safetensors", metadata={"format": "pt"})
    with pytest.raises(SystemExit) as stopped:
        export.main(["--checkpoint", str(run), "--output_dir", str(tmp_path / "export")])
    assert stopped.value.code == 2 and "the export equals its base" in capsys.readouterr().err
    assert {path.name for path in tmp_path.iterdir()} == {"run"}


def test_export_refuses_what_is_no_finished_run(
    lora_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for words, complaint in (
        (["--checkpoint", str(tmp_path), "--output_dir", str(tmp_path / "export")], "has no run.json"),
        (["--checkpoint", str(lora_run), "--output_dir", str(tmp_path)], "exists; choose another"),
    ):
        with pytest.raises(SystemExit) as stopped:
            export.main(words)
        assert stopped.value.code == 2 and complaint in capsys.readouterr().err


def run_like(lora_run: Path, folder: Path, **changes: object) -> str:
    """A training run as far as its run.json, which is changed or is no JSON at all."""
    folder.mkdir()
    run = json.loads((lora_run / "run.json").read_text()) | changes
    (folder / "run.json").write_text(json.dumps(run) if changes else "{")
    return str(folder)


def test_export_refuses_a_run_that_does_not_say_what_it_must(
    lora_run: Path, pairs_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = json.loads((lora_run / "run.json").read_text())
    metrics = tmp_path / "report.json"
    metrics.write_text("{")
    for name, changes, more, complaint in (
        ("damaged", {}, [], "run.json is damaged"),
        (
            "foreign",
            {"config": {"questions": "q"}, "command": "condensery record"},
            [],
            "but of condensery record",
        ),
        ("unfinished", {"counts": {}}, [], "is not finished"),
        ("other_data", {"inputs": {str(pairs_file): "0"}}, [], "has changed since the training"),
        ("other_metrics", {"seed": 0}, ["--metrics", str(metrics)], "not JSON"),
        ("no_budget", {"seed": 0}, ["--max_new_tokens", "0"], "expected at least 1"),
    ):
        words = ["--checkpoint", run_like(lora_run, tmp_path / name, **changes), *more]
        with pytest.raises(SystemExit) as stopped:
            export.main([*words, "--output_dir", str(tmp_path / "export")])
        assert stopped.value.code == 2 and complaint in capsys.readouterr().err, name
    assert run["inputs"] and not (tmp_path / "export").exists()


def test_scrambled_merge_is_caught() -> None:
    """In one precision any drift counts; where the export rounds, drift is held against the change."""
    trained, base = torch.zeros(4), torch.ones(4)
    for drift, rounded, passes in (
        (1e-6, False, True),
        (1e-3, False, False),
        (1e-2, True, True),
        (0.5, True, False),
    ):
        proof: Proof = compare(trained, trained + drift, base, (3, 4), rounded)
        if passes:
            proof.check()
        else:
            with pytest.raises(ValueError, match="not the trained model"):
                proof.check()


def test_training_prefix_equals_serving_prompt_after_export(lora_run: Path) -> None:
    from modeling.chat_template import prompt_ids, render_pair
    from modeling.fixed_prompts import fixed_chats

    tokenizer = load_tokenizer(str(lora_run))
    for prompt, completion in fixed_chats():
        pair = render_pair(tokenizer, prompt, completion)
        assert pair.input_ids[: pair.num_prompt_tokens] == prompt_ids(tokenizer, prompt)
