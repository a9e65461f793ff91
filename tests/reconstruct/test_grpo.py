"""GRPO through its real entry on tiny models: the shared prompt changes nothing, a resumed run equals an
uninterrupted one, and what cannot work is refused."""

import itertools
import json
import math
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from condensery.compaction import Compaction
from condensery.message import FunctionCall, Message, ToolCall
from reconstruct import grpo
from reconstruct.blocks import blocks_of
from reconstruct.instance import Instance
from reconstruct.masks import draw_masks
from tests.distill.tiny_runs import losses, refusal
from tests.scripted_endpoint import ScriptedEndpoint, say
from tests.two_processes import DDP, FSDP2, launch

CONFIG = Path(__file__).parents[2] / "configs" / "grpo" / "smollm2_cpu.yaml"
Words = Callable[..., list[str]]


def make_instance(number: int) -> Instance:
    """Four searches, of which every second block is hidden."""
    turns: list[Message] = []
    for step in range(4):
        call = ToolCall(id=f"c{step}", function=FunctionCall(name="search", arguments='{"query": "mill"}'))
        turns.append(Message(role="assistant", content=f"Look for mill {step}.", tool_calls=[call]))
        page = f"The mill of bay {number} {step} was built in {1700 + 10 * number + step}."
        turns.append(Message(role="tool", content=page, tool_call_id=f"c{step}"))
    compaction = Compaction(
        id=f"c{number}", trajectory_id=f"t{number}", question_id=f"q{number}", index=0,
        task="When were the mills built?", expired=turns,
    )  # fmt: skip
    blocks = blocks_of(compaction, 16, lambda text: len(text.split()))
    masks = draw_masks(len(blocks), 0.5, 1, number)
    return Instance(
        id=compaction.id, compaction=compaction, context_tokens=256, blocks=blocks, masks=masks,
        source="test", language="en",
    )  # fmt: skip


@pytest.fixture(scope="module")
def instances_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("instances") / "instances.jsonl"
    path.write_text("".join(make_instance(number).model_dump_json() + "\n" for number in range(6)))
    return path


@pytest.fixture
def words(tiny_llama: Path, instances_file: Path, tmp_path: Path) -> Words:
    """The shipped CPU config on tiny float32 models, two steps of one group; later words override."""

    def make(*more: str, output_dir: Path = tmp_path / "run") -> list[str]:
        return [
            *("--config", str(CONFIG), "--model_name_or_path", str(tiny_llama), "--dtype", "float32"),
            *("--reconstructor", str(tiny_llama), "--train_file", str(instances_file)),
            *("--output_dir", str(output_dir), "--bf16", "false", "--max_completion_length", "8"),
            *("--groups_per_step", "1", "--num_generations", "4", "--per_device_train_batch_size", "4"),
            *("--per_device_eval_batch_size", "4", "--max_steps", "2", "--learning_rate", "1e-2", *more),
        ]

    return make


@pytest.fixture
def readable(monkeypatch: pytest.MonkeyPatch) -> None:
    """A random model writes no summary: whatever it writes is taken for one."""
    from condensery.summary import Summary

    monkeypatch.setattr(
        "reconstruct.rewards.parse_summary", lambda text, reason: Summary(text=text.strip() or "nothing")
    )


def test_two_steps_leave_a_student_and_their_parts(words: Words, readable: None, tmp_path: Path) -> None:
    assert grpo.main(words("--contrast_weight", "0.5")) == 0
    run = json.loads((tmp_path / "run" / "run.json").read_text())
    assert run["counts"]["finished"] and run["counts"]["num_steps"] == 2
    history = json.loads((tmp_path / "run" / "log_history.json").read_text())
    for name in ("reward", "quality", "gain", "contrast", "penalty", "parsed", "quality/zero_std", "missing"):
        assert name in history[0], name
    assert (tmp_path / "run" / "model.safetensors").is_file()


def test_the_run_is_exported_with_the_prompt_template_of_its_settings(
    words: Words, readable: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its instances name none. A user's own is one of the run's inputs: it may not change behind its back."""
    from distill import export

    template = tmp_path / "mine.jinja"
    template.write_text("Summarize {{ history }} for {{ task }}")
    named = words("--prompt_template", str(template))
    assert grpo.main(named) == 0
    run, folder = tmp_path / "run", tmp_path / "export"
    exported = ["--checkpoint", str(run), "--output_dir", str(folder)]
    assert export.main(exported) == 0
    card = json.loads((folder / "condensery.json").read_text())
    assert card["prompt_template"] == {"name": "mine", "text": template.read_text()}
    shutil.rmtree(folder)
    template.write_text("Sum up {{ history }} for {{ task }}")
    assert f"{template} is gone or has changed" in refusal(export.main, exported, capsys)
    assert "(the data)" in refusal(grpo.main, [*named, "--resume"], capsys)
    assert export.main([*exported, "--prompt_template", "compact_v1"]) == 0


LORA = ["--use_peft", "--lora_target_modules", "q_proj", "v_proj", "--lora_dropout", "0"]


@pytest.mark.parametrize(
    ("student", "more"),
    [
        ("tiny_llama", []),
        ("tiny_llama", LORA),
        ("tiny_llama", ["--groups_per_step", "2"]),
        ("tiny_llama", ["--gradient_checkpointing", "true"]),
        ("tiny_qwen3_moe", []),
        ("tiny_qwen3_moe", LORA),
        ("tiny_qwen3_5", []),
        ("tiny_qwen3_5", ["--gradient_checkpointing", "true"]),
    ],
)
def test_a_shared_prompt_trains_as_plain_rows_do(
    student: str,
    more: list[str],
    words: Words,
    readable: None,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    more = ["--model_name_or_path", str(request.getfixturevalue(student)), *more]
    assert grpo.main(words(*more, "--optim", "sgd", output_dir=tmp_path / "shared")) == 0
    monkeypatch.setattr("reconstruct.grpo_trainer.why_not_shared", lambda model: "a test")
    assert grpo.main(words(*more, "--optim", "sgd", output_dir=tmp_path / "plain")) == 0
    shared, plain = (load_file(next((tmp_path / way).glob("*.safetensors"))) for way in ("shared", "plain"))
    assert losses(tmp_path / "shared") == pytest.approx(losses(tmp_path / "plain"), abs=1e-5)
    assert shared.keys() == plain.keys()
    for name, weight in plain.items():
        assert (shared[name] - weight).abs().max() <= 1e-6, name


@pytest.mark.slow
@pytest.mark.parametrize("way", ["ddp", "fsdp2"])
def test_two_processes_share_prompts_as_plain_rows_train(way: str, words: Words, tmp_path: Path) -> None:
    """Each computes the groups of its own; what they sample depends on a step and a process alone."""
    argv = [str(tmp_path), *words("--groups_per_step", "2", "--optim", "sgd")]
    said = launch(DDP if way == "ddp" else FSDP2, "tests/reconstruct/grpo_entry.py", argv)
    assert said.count("4 per device x 2 process(es) x 1 accumulated") == 2
    assert way == "ddp" or said.count("sharded over 2 processes") == 2
    shared, plain = (load_file(tmp_path / name / "model.safetensors") for name in ("shared", "plain"))
    assert losses(tmp_path / "shared") == pytest.approx(losses(tmp_path / "plain"), abs=1e-5)
    for name, weight in plain.items():
        assert (shared[name] - weight).abs().max() <= 1e-6, name


@pytest.mark.parametrize(
    ("rewards", "expected"),
    [
        ([1.0, 0.0, math.nan, None], [2**-0.5, -(2**-0.5), 0, 0]),
        ([0.1, 0.1, None, 0.1], [0, 0, 0, 0]),
        ([0.5, None, None, None], [0, 0, 0, 0]),
    ],
)
def test_a_missing_reward_is_no_advantage_and_not_zero(
    rewards: list[float | None],
    expected: list[float],
    words: Words,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Through TRL, which is the one that counts them."""
    from reconstruct import grpo_trainer
    from reconstruct.rewards import ReconstructionReward

    found: list[list[float]] = []
    split = grpo_trainer.split_tensor_dict

    def note(batch: Any, steps: int) -> Any:
        found.append(batch["advantages"].tolist())
        return split(batch, steps)

    monkeypatch.setattr(grpo_trainer, "split_tensor_dict", note)
    monkeypatch.setattr(ReconstructionReward, "__call__", lambda *_, **__: rewards)
    assert grpo.main(words("--max_steps", "1")) == 0
    assert found == [pytest.approx(expected, abs=1e-3)]


def test_resumed_run_equals_an_uninterrupted_one(
    words: Words, readable: None, instances_file: Path, tmp_path: Path
) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    more = ["--max_steps", "5", "--save_steps", "2", "--save_total_limit", "3", "--limit", "4"]
    assert grpo.main(words(*more, output_dir=whole)) == 0
    assert grpo.main(words(*more, output_dir=broken)) == 0
    run = json.loads((broken / "run.json").read_text())
    (broken / "run.json").write_text(json.dumps(run | {"counts": {}}))
    for name in ("checkpoint-5", "checkpoint-4"):
        shutil.rmtree(broken / name, ignore_errors=True)
    assert grpo.main([*words(*more, output_dir=broken), "--resume"]) == 0
    assert losses(broken) == losses(whole)
    assert (broken / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        (["--max_completion_length", "1000"], "too_long"),
        (["--groups_per_step", "9"], "6 instances are fewer than --groups_per_step 9"),
        (["--per_device_train_batch_size", "8", "--num_generations", "3"], "divisible by num_generations"),
        (["--reward", "generate"], "--reconstructor_url is None"),
        (["--reward_weights", "1"], "one reward"),
        (["--train_file", "nowhere.jsonl"], "nowhere.jsonl"),
    ],
)
def test_bad_input_stops_before_anything_is_written(
    words: Words, more: list[str], complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert complaint in refusal(grpo.main, words(*more), capsys)
    assert not (tmp_path / "run").exists()


def test_a_question_in_both_files_is_refused(
    words: Words, instances_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    message = refusal(grpo.main, words("--eval_file", str(instances_file)), capsys)
    assert "6 questions stand in both files" in message


def test_a_group_is_planned_as_one_row_with_the_frozen_model_beside(words: Words, tiny_llama: Path) -> None:
    from trl import GRPOConfig, ModelConfig

    from condensery.files.config import parse_args
    from modeling.loading import load_config
    from modeling.memory_plan import num_bytes, plan_memory
    from reconstruct.arguments import GRPOArguments

    settings = parse_args(
        *(GRPOArguments, GRPOConfig, ModelConfig), argv=words(), prog="grpo", description="", example=""
    )
    prepared, findings = grpo.prepare(*settings)
    config = load_config(str(tiny_llama))
    longest = max(len(row["prompt"]) for row in prepared.datasets["train"])
    one_row = plan_memory(config, torch.float32, (1, longest + 4 * (8 + 1)))
    assert not findings.problems
    assert prepared.memory.activations == one_row.activations
    assert prepared.memory.frozen == num_bytes(config) > 0


@pytest.mark.parametrize("share", [0.3, 0.6])
def test_a_run_bears_some_verdicts_that_cannot_be_read_and_stops_at_most(
    share: float, words: Words, readable: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The judge answers prose on that share of summaries, which then have no reward."""
    serial = itertools.count()

    def restore(body: dict) -> dict:
        number = next(serial)
        spans = (f'<span id="{block}">mill {number}</span>' for block in range(1, 5))
        return say("\n".join(spans))

    def judge(body: dict) -> dict:
        number = int(re.findall(r"mill (\d+)\n", body["messages"][-1]["content"])[-1])
        fails = number % 10 < 10 * share
        return say("hm" if fails else json.dumps({"precision": number % 7 / 7, "recall": 0.5}))

    with ScriptedEndpoint(restore) as restoring, ScriptedEndpoint(judge) as judging:
        argv = words(
            *("--reward", "generate", "--reconstructor", "scripted", "--reconstructor_url", restoring.url),
            *("--judge", "scripted", "--judge_url", judging.url, "--max_steps", "10"),
        )
        if share > 0.5:
            assert "judge verdicts are missing" in (said := refusal(grpo.main, argv, capsys))
            assert "not_json" in said and "the tolerated 50%" in said
            return
        assert grpo.main(argv) == 0
    history = json.loads((tmp_path / "run" / "log_history.json").read_text())
    missing = [entry["missing"] for entry in history if "missing" in entry]
    assert sum(missing) / len(missing) == pytest.approx(share) and max(missing) < 1
    assert any(entry.get("grad_norm", 0) > 0 for entry in history)


def test_answers_that_nobody_can_read_are_told_once(words: Words, capsys: pytest.CaptureFixture[str]) -> None:
    """A random model writes no summary: the run ends, and it is said that it has learned nothing."""
    assert grpo.main(words()) == 0
    said = capsys.readouterr()
    assert (said.out + said.err).count("none of 4 answers holds a summary") == 1
