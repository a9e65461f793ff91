"""The SFT stage through its real entry: configs, two steps, exact resume, refusals."""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from distill import sft
from tests.distill.tiny_runs import losses, refusal

Words = Callable[..., list[str]]
ROOT = Path(__file__).parents[2]
CONFIGS = ROOT / "configs" / "sft"


RECIPES = {  # each with a tiny model of its class
    "smollm2_cpu.yaml": "tiny_llama",
    "qwen3_1_7b.yaml": "tiny_qwen3",
    "qwen3_4b.yaml": "tiny_qwen3",
    "qwen3_5_2b.yaml": "tiny_qwen3_5",
    "qwen3_32b_qlora.yaml": "tiny_qwen3",
    "qwen3_30b_a3b.yaml": "tiny_qwen3_moe",
    "qwen3_30b_a3b_lora.yaml": "tiny_qwen3_moe",
}


@pytest.mark.parametrize("config", sorted(path.name for path in CONFIGS.glob("*.yaml")))
def test_shipped_config_trains_two_steps(
    sft_words: Words, config: str, request: pytest.FixtureRequest, pairs_file: Path, tmp_path: Path
) -> None:
    """4 bits are left out: bitsandbytes is a package for GPUs."""
    output_dir, model = tmp_path / "run", request.getfixturevalue(RECIPES[config])
    words = sft_words(config, model, pairs_file, output_dir, "--load_in_4bit", "false")
    assert sft.main(words) == 0
    run = json.loads((output_dir / "run.json").read_text())
    assert (
        run["counts"]["finished"] and run["counts"]["num_steps"] == 2 and run["inputs"] and run["seed"] == 0
    )
    assert len(losses(output_dir)) == 2
    weights = "adapter_model.safetensors" if "lora" in config else "model.safetensors"
    assert (output_dir / weights).is_file() and (output_dir / "chat_template.jinja").is_file()


@pytest.mark.parametrize("config", sorted(path.name for path in CONFIGS.glob("*.yaml")))
def test_shipped_config_says_what_it_is_for_and_keeps_the_batch_of_resum(config: str) -> None:
    text = (CONFIGS / config).read_text()
    for heading in ("Purpose", "Hardware", "Download", "Command", "Result"):
        assert f"# {heading}:" in text
    assert f"--config configs/sft/{config}" in text
    assert "global_batch_size: 64" in text or config == "smollm2_cpu.yaml"


@pytest.mark.parametrize("path", sorted((ROOT / "configs/accelerate").glob("*.yaml")), ids=lambda p: p.name)
def test_accelerate_takes_its_shipped_configs(path: Path) -> None:
    """By the loader of `accelerate launch`, which lets a misspelt key of FSDP or DeepSpeed pass."""
    from accelerate.commands.config.config_args import load_config_from_file
    from accelerate.commands.launch import launch_command_parser

    config = load_config_from_file(str(path))
    assert config.num_processes == {"cpu.yaml": 1, "fsdp2_2nodes.yaml": 16}.get(path.name, 8)
    known = {action.dest for action in launch_command_parser()._actions}
    assert {*config.fsdp_config, *config.deepspeed_config} <= known
    assert f"configs/accelerate/{path.name}" in path.read_text()


def test_an_eval_file_is_looked_at_without_further_settings(
    sft_words: Words, tiny_llama: Path, pairs_file: Path, tmp_path: Path
) -> None:
    lines = pairs_file.read_text().splitlines(keepends=True)
    train, held_out = tmp_path / "train.jsonl", tmp_path / "held_out.jsonl"
    train.write_text("".join(lines[:8]))
    held_out.write_text("".join(lines[8:]))
    words = sft_words("smollm2_cpu.yaml", tiny_llama, train, tmp_path / "run", "--max_steps", "1")
    assert sft.main([*words, "--eval_file", str(held_out)]) == 0
    assert json.loads((tmp_path / "run/run.json").read_text())["counts"]["last_eval_loss"] > 0


def test_accelerate_launch_runs_the_script(
    sft_words: Words, tiny_llama: Path, pairs_file: Path, tmp_path: Path
) -> None:
    """As the docs say it: from the repository root, through accelerate, as a file."""
    words = sft_words("smollm2_cpu.yaml", tiny_llama, pairs_file, tmp_path / "run", "--max_steps", "1")
    config = str(ROOT / "configs" / "accelerate" / "cpu.yaml")
    launch = [sys.executable, "-m", "accelerate.commands.launch", "--config_file", config, "distill/sft.py"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*launch, *words], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert ">>> supervised >>>" in done.stderr and "a step sees 2" in done.stderr


def test_its_config_repeats_a_run(
    sft_words: Words, tiny_llama: Path, pairs_file: Path, tmp_path: Path
) -> None:
    assert sft.main(sft_words("smollm2_cpu.yaml", tiny_llama, pairs_file, tmp_path / "run")) == 0
    config = tmp_path / "run" / "config.yaml"
    assert sft.main(["--config", str(config), "--output_dir", str(tmp_path / "again")]) == 0
    assert losses(tmp_path / "again") == losses(tmp_path / "run")


def test_misspelt_key_in_a_config_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "sft.yaml"
    config.write_text((CONFIGS / "smollm2_cpu.yaml").read_text().replace("learning_rate", "lerning_rate"))
    assert "did you mean 'learning_rate'" in refusal(
        sft.main, ["--config", str(config), "--train_file", "x", "--output_dir", "y"], capsys
    )


@pytest.mark.parametrize("variant", ["dense", "experts", "lora"])
def test_resumed_run_equals_an_uninterrupted_one(
    variant: str,
    request: pytest.FixtureRequest,
    sft_words: Words,
    lora_on_experts: list[str],
    pairs_file: Path,
    tmp_path: Path,
) -> None:
    """Killed after the checkpoint of step 3 of 6, in the second epoch; its later traces are removed."""
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    model = request.getfixturevalue("tiny_llama" if variant == "dense" else "tiny_qwen3_moe")
    more = ["--max_steps", "8", "--save_steps", "3", "--save_total_limit", "5"]
    more += lora_on_experts if variant == "lora" else []
    for output_dir in (whole, broken):
        assert sft.main(sft_words("smollm2_cpu.yaml", model, pairs_file, output_dir, *more)) == 0
    run = json.loads((broken / "run.json").read_text())
    (broken / "run.json").write_text(json.dumps(run | {"counts": {}}))
    (broken / "checkpoint-6" / "trainer_state.json").write_text('{"glob')  # half-written
    (broken / "checkpoint-8" / "trainer_state.json").unlink()
    words = sft_words("smollm2_cpu.yaml", model, pairs_file, broken, *more)
    assert sft.main([*words, "--resume"]) == 0
    assert losses(broken) == losses(whole)
    (weights,) = whole.glob("*.safetensors")
    assert (broken / weights.name).read_bytes() == weights.read_bytes()
    if variant != "lora":
        assert (broken / "config.json").read_text() == (whole / "config.json").read_text()


@pytest.mark.skipif(not hasattr(resource, "RLIMIT_FSIZE"), reason="no limit on files")
@pytest.mark.parametrize("writing", ["weights", "optimizer"])
def test_a_disk_that_fills_leaves_the_last_checkpoint(
    writing: str, sft_words: Words, tiny_llama: Path, pairs_file: Path, tmp_path: Path
) -> None:
    """Every file of the second checkpoint above the limit fails, as on a disk that is full."""
    run = tmp_path / "run"
    more = ["--max_steps", "4", "--save_steps", "2", "--save_total_limit", "5"]
    words = sft_words("smollm2_cpu.yaml", tiny_llama, pairs_file, run, *more)
    assert sft.main(words) == 0
    expected = losses(run)
    (run / "run.json").write_text(json.dumps(json.loads((run / "run.json").read_text()) | {"counts": {}}))
    num_bytes = (run / "model.safetensors").stat().st_size
    (run / "model.safetensors").unlink()
    shutil.rmtree(run / "checkpoint-4")
    limit = num_bytes // 2 if writing == "weights" else num_bytes * 3 // 2
    done = subprocess.run(
        [sys.executable, "distill/sft.py", *words, "--resume"],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )
    assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr[-3000:]
    assert "checkpoint-2 is whole; make room" in done.stderr.splitlines()[-1]
    assert sft.main([*words, "--resume"]) == 0
    assert losses(run) == expected


@pytest.mark.slow
def test_killed_run_resumes_to_the_same_losses(
    sft_words: Words, tiny_llama: Path, pairs_file: Path, tmp_path: Path
) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    more = ["--max_steps", "40", "--save_steps", "5"]
    assert sft.main(sft_words("smollm2_cpu.yaml", tiny_llama, pairs_file, whole, *more)) == 0
    words = sft_words("smollm2_cpu.yaml", tiny_llama, pairs_file, broken, *more)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    process = subprocess.Popen([sys.executable, "distill/sft.py", *words], cwd=ROOT, env=environment)
    while not list(broken.glob("checkpoint-*")):
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert sft.main([*words, "--resume"]) == 0
    assert losses(broken) == losses(whole)


def test_existing_run_is_refused_and_a_finished_one_left_alone(
    sft_words: Words, tiny_llama: Path, pairs_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = sft_words("smollm2_cpu.yaml", tiny_llama, pairs_file, tmp_path / "run", "--max_steps", "1")
    assert sft.main(words) == 0
    assert "--resume" in refusal(sft.main, words, capsys)
    assert sft.main([*words, "--resume"]) == 0
    assert "nothing to resume" in capsys.readouterr().err


def test_two_runs_never_write_into_one_folder(
    sft_words: Words, tiny_llama: Path, pairs_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second is started at the same moment, or goes on with what is not over yet."""
    from condensery.files.run_directory import only_writer

    run = tmp_path / "run"
    run.mkdir()
    words = sft_words("smollm2_cpu.yaml", tiny_llama, pairs_file, run, "--max_steps", "1")
    for more in ([], ["--resume"]):
        with only_writer(run):
            assert f"{run} is being written by another" in refusal(sft.main, [*words, *more], capsys)
        assert not list(run.iterdir())
    assert sft.main(words) == 0


def test_resume_with_other_settings_is_refused(
    sft_words: Words, tiny_llama: Path, pairs_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = sft_words("smollm2_cpu.yaml", tiny_llama, pairs_file, tmp_path / "run", "--max_steps", "1")
    assert sft.main(words) == 0
    path = tmp_path / "run" / "run.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"counts": {}}))
    before = path.read_bytes()
    assert "learning_rate: 0.01 -> 1.0" in refusal(
        sft.main, [*words, "--resume", "--learning_rate", "1"], capsys
    )
    assert json.loads(path.read_bytes()) == json.loads(before)


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        (["--global_batch_size", "3", "--per_device_train_batch_size", "2"], "may be one of 1, 3"),
        (["--max_length", "20"], "12 x too_long"),
        (["--global_batch_size", "0"], "global_batch_size is 0"),
        (["--per_device_train_batch_size", "0"], "per_device_train_batch_size is 0"),
        (["--max_steps", "-1", "--num_train_epochs", "0"], "are no step"),
        (["--packing"], "--packing True is not used here"),
        (["--load_in_8bit"], "--load_in_8bit True is not used here"),
        (["--assistant_only_loss"], "--assistant_only_loss True is not used here"),
        (["--completion_only_loss", "false"], "the loss is on the completion alone"),
        (["--resume_from_checkpoint", "x"], "use --resume"),
        (["--model_init_kwargs", '{"dtype": "bfloat16"}'], "use --dtype"),
        # These are refused by libraries, the last ones when the first step is near.
        (["--use_liger_kernel"], "liger-kernel"),
        (["--optim", "adamw_bnb_8bit"], "bitsandbytes"),
        (["--learning_rate", "-1"], "--learning_rate is -1; it must be above 0"),
        (["--lr_scheduler_type", "warmup_stable_decay"], "set --lr_scheduler_kwargs"),
        (["--global_batch_size", "16"], "12 rows are fewer than global_batch_size 16"),
        (["--metric_for_best_model", "nothere"], "nothere is not measured"),
        (["--metric_for_best_model", "fact_recall"], "needs --eval_generate"),
        (["--use_peft", "--lora_modules_to_save", "bogus"], "bogus match nothing"),
        (["--lr_scheduler_type", "cosine_with_min_lr"], "min_lr"),
        (["--train_file", "nowhere.jsonl"], "no pairs file nowhere.jsonl"),
        (["--gradient_accumulation_steps", "4"], "follows from --global_batch_size"),
    ],
)
def test_bad_input_stops_before_anything_is_written(
    sft_words: Words,
    more: list[str],
    complaint: str,
    tiny_llama: Path,
    pairs_file: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert complaint in refusal(
        sft.main, sft_words("smollm2_cpu.yaml", tiny_llama, pairs_file, tmp_path / "run", *more), capsys
    )
    assert not (tmp_path / "run").exists()


def test_a_failure_after_a_checkpoint_keeps_what_can_be_resumed(
    sft_words: Words, tiny_llama: Path, pairs_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from modeling.progress import ProgressLines

    def fail(self: object, args: object, state: object, control: object, **more: object) -> None:
        raise RuntimeError("out of memory")

    words = sft_words("smollm2_cpu.yaml", tiny_llama, pairs_file, tmp_path / "run", "--save_steps", "1")
    with monkeypatch.context() as patch:
        patch.setattr(ProgressLines, "on_save", fail, raising=False)
        with pytest.raises(RuntimeError, match="out of memory"):
            sft.main(words)
    assert (tmp_path / "run" / "run.json").is_file()
    assert sft.main([*words, "--resume"]) == 0 and len(losses(tmp_path / "run")) == 2
    (tmp_path / "run" / "run.json").write_text("[]")
    with pytest.raises(SystemExit) as stopped:
        sft.main([*words, "--resume"])
    assert stopped.value.code == 2


def test_dry_run_writes_nothing(sft_words: Words, tiny_llama: Path, pairs_file: Path, tmp_path: Path) -> None:
    words = sft_words("smollm2_cpu.yaml", tiny_llama, pairs_file, tmp_path / "run", "--dry_run")
    assert sft.main(words) == 0 and not (tmp_path / "run").exists()


def test_lora_targets_that_match_nothing_are_refused(
    sft_words: Words,
    lora_on_experts: list[str],
    tiny_qwen3_moe: Path,
    pairs_file: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = sft_words("qwen3_30b_a3b.yaml", tiny_qwen3_moe, pairs_file, tmp_path / "run", *lora_on_experts)
    with pytest.raises(SystemExit):
        sft.main([*words, "--lora_target_parameters", "mlp.experts.gate_up_proj", "mlp.expert.down"])
    assert "mlp.expert.down" in capsys.readouterr().err


def test_a_model_without_its_weights_leaves_nothing_that_blocks_the_next_try(
    sft_words: Words, tiny_llama: Path, pairs_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = shutil.copytree(tiny_llama, tmp_path / "broken")
    weights = (broken / "model.safetensors").read_bytes()
    (broken / "model.safetensors").write_bytes(weights[: len(weights) // 2])
    assert f"cannot load {broken}" in refusal(
        sft.main,
        sft_words("smollm2_cpu.yaml", broken, pairs_file, tmp_path / "run", "--max_steps", "1"),
        capsys,
    )
    assert (
        sft.main(sft_words("smollm2_cpu.yaml", tiny_llama, pairs_file, tmp_path / "run", "--max_steps", "1"))
        == 0
    )


@pytest.mark.parametrize("model", ["tiny_llama", "tiny_qwen3_moe"])
def test_joined_rows_give_the_losses_and_weights_of_padded_ones(
    model: str, request: pytest.FixtureRequest, sft_words: Words, pairs_file: Path, tmp_path: Path
) -> None:
    """Eight rows at once or one by one, then the epoch's last four: plain steps show the gradients.

    The auxiliary loss of a mixture depends on the batch and is left out.
    """
    folder = request.getfixturevalue(model)
    weights = {}
    for way, more in {
        "padded": ["--per_device_train_batch_size", "8"],
        "joined": ["--per_device_train_batch_size", "8", "--padding_free"],
        "accumulated": ["--per_device_train_batch_size", "1"],
    }.items():
        words = sft_words("smollm2_cpu.yaml", folder, pairs_file, tmp_path / way, *more)
        alike = ["--global_batch_size", "8", "--optim", "sgd", "--router_aux_loss_coef", "0"]
        assert sft.main([*words, *alike]) == 0
        weights[way] = load_file(tmp_path / way / "model.safetensors")
    for way in ("joined", "accumulated"):
        assert losses(tmp_path / way) == pytest.approx(losses(tmp_path / "padded"), abs=1e-5)
        for name, weight in weights["padded"].items():
            assert torch.allclose(weights[way][name], weight, atol=1e-7), name  # of gradients: 1e-5


def test_a_loss_that_is_no_number_stops_and_leaves_the_checkpoint(
    sft_words: Words, tiny_llama: Path, pairs_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = ["--max_steps", "6", "--save_steps", "1", "--optim", "sgd", "--max_grad_norm", "0"]
    words = sft_words("smollm2_cpu.yaml", tiny_llama, pairs_file, tmp_path / "run", *more)
    with pytest.raises(SystemExit):
        sft.main([*words, "--learning_rate", "1e30"])
    message = capsys.readouterr().err
    assert "not finite" in message or "of step" in message
    assert "--learning_rate" in message
    for folder in (tmp_path / "run").glob("checkpoint-*"):
        assert all(
            torch.isfinite(weight).all() for weight in load_file(folder / "model.safetensors").values()
        )


def test_a_frozen_router_stays_as_it_was(
    sft_words: Words, tiny_qwen3_moe: Path, pairs_file: Path, tmp_path: Path
) -> None:
    words = sft_words("qwen3_30b_a3b.yaml", tiny_qwen3_moe, pairs_file, tmp_path / "run", "--freeze_router")
    assert sft.main(words) == 0
    before = load_file(tiny_qwen3_moe / "model.safetensors")
    after = load_file(tmp_path / "run" / "model.safetensors")
    same = {name for name in before if torch.equal(before[name], after[name])}
    assert {name for name in before if "mlp.gate.weight" in name} <= same and len(same) < len(before) / 2


def test_a_broken_base_is_named_before_the_first_step(
    sft_words: Words, tiny_llama: Path, pairs_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """NaN in the weights; a window shorter than the rows; a token without an embedding."""
    weights = load_file(tiny_llama / "model.safetensors")
    weights["model.norm.weight"] = weights["model.norm.weight"] * float("nan")
    config = json.loads((tiny_llama / "config.json").read_text())
    for name, changes, complaint in (
        ("nan", {}, "cannot be trained: 1 parameters are not finite"),
        ("window", {"max_position_embeddings": 32}, "the window of"),
        ("vocabulary", {"vocab_size": 40000}, "its model 40000 embeddings"),
    ):
        folder = shutil.copytree(tiny_llama, tmp_path / name)
        if name == "nan":
            save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
        (folder / "config.json").write_text(json.dumps(config | changes))
        words = sft_words("smollm2_cpu.yaml", folder, pairs_file, tmp_path / "run")
        assert complaint in refusal(sft.main, words, capsys)
        assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("file", ["optimizer.pt", "scheduler.pt", "model.safetensors", "trainer_state.json"])
def test_a_checkpoint_that_is_damaged_later_is_named(
    file: str,
    sft_words: Words,
    tiny_llama: Path,
    pairs_file: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """But for its last file: without that it counts as half-written, and the one before is taken."""
    run = tmp_path / "run"
    more = ["--max_steps", "3", "--save_steps", "1", "--save_total_limit", "3"]
    words = sft_words("smollm2_cpu.yaml", tiny_llama, pairs_file, run, *more)
    assert sft.main(words) == 0
    (run / "run.json").write_text(json.dumps(json.loads((run / "run.json").read_text()) | {"counts": {}}))
    shutil.rmtree(run / "checkpoint-3")
    broken = run / "checkpoint-2" / file
    broken.write_bytes(
        b"[]" if file == "trainer_state.json" else broken.read_bytes()[: -broken.stat().st_size // 2]
    )
    if file != "trainer_state.json":
        assert "checkpoint-2 is damaged" in refusal(sft.main, [*words, "--resume"], capsys)
        shutil.rmtree(run / "checkpoint-2")
    assert sft.main([*words, "--resume"]) == 0


def test_a_finished_run_takes_no_other_settings(
    sft_words: Words, tiny_llama: Path, pairs_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = sft_words("smollm2_cpu.yaml", tiny_llama, pairs_file, tmp_path / "run")
    assert sft.main(words) == 0 and sft.main([*words, "--resume"]) == 0
    message = refusal(sft.main, [*words, "--resume", "--max_steps", "9"], capsys)
    assert "max_steps: 2 -> 9" in message
    for counts in ([], None):
        run = json.loads((tmp_path / "run" / "run.json").read_text())
        (tmp_path / "run" / "run.json").write_text(json.dumps(run | {"counts": counts}))
        assert "describes no run" in refusal(sft.main, [*words, "--resume"], capsys)
