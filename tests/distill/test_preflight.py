"""A run is checked whole: every planted fault is listed at once, and nothing trains until they are gone."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from distill import preflight, sft

NUM_ROWS = 5000
LONG = "word " * 2000


def empty(row: dict) -> dict:
    return row | {"completion": [{"role": "assistant", "content": " "}]}


def unparsable(row: dict) -> dict:
    return row | {"completion": [{"role": "assistant", "content": "The summary is lost."}]}


def too_long(row: dict) -> dict:
    return row | {"prompt": [{"role": "user", "content": LONG}]}


def without_role(row: dict) -> dict:
    return row | {"prompt": [{"content": "Summarize this."}]}


def orphaned(row: dict) -> dict:
    return row | {"prompt": [*row["prompt"], {"role": "tool", "content": "42", "tool_call_id": "call-9"}]}


def duplicate(row: dict) -> dict:
    return row | {"id": "pair-0"}


def other_template(row: dict) -> dict:
    return row | {"prompt_template": "compact_v0"}


FAULTS: list[tuple[Callable[[dict], dict], str]] = [
    *[(too_long, "too_long"), (empty, "empty_completion"), (unparsable, "not_a_summary")] * 3,
    *[(without_role, "shape"), (orphaned, "orphaned_result"), (duplicate, "duplicate_id")] * 3,
    *[(other_template, "prompt_template")] * 2,
]


@pytest.fixture
def faulty(tmp_path: Path, make_pair: Callable[[int], dict]) -> tuple[list[str], dict[str, str]]:
    """Words for the command, and the 23 planted faults by place: 21 in the training rows, two held out."""
    train, held_out = tmp_path / "train.jsonl", tmp_path / "held_out.jsonl"
    rows = [make_pair(number) for number in range(NUM_ROWS)]
    lines = [json.dumps(row).encode() for row in rows]
    planted = {}
    for position, (spoil, reason) in enumerate(FAULTS):
        number = 150 + 211 * position
        lines[number] = json.dumps(spoil(rows[number])).encode()
        planted[f"{train}:{number + 1}"] = reason
    lines[4999] = lines[4999].replace(b"Summarize", b"Summ\xe9rize")
    planted[f"{train}:5000"] = "unreadable"
    train.write_bytes(b"\n".join(lines) + b"\n")
    leaked = [json.dumps(rows[number] | {"id": f"held-{number}"}) for number in (10, 20)]
    fresh = [json.dumps(make_pair(NUM_ROWS + number)) for number in range(5)]
    held_out.write_text("\n".join([*fresh, *leaked]) + "\n")
    planted |= {f"{held_out}:6": "both_splits", f"{held_out}:7": "both_splits"}
    assert len(planted) == 23
    return ["--train_file", str(train), "--eval_file", str(held_out)], planted


def problems_of(text: str) -> dict[str, str]:
    """Reasons by place."""
    lines = [line.split(": ", 2) for line in text.splitlines() if ".jsonl:" in line]
    return {place: reason for place, reason, _ in lines}


def test_all_planted_faults_are_listed_at_once(
    faulty: tuple[list[str], dict[str, str]],
    sft_words: Callable[..., list[str]],
    tiny_llama: Path,
    pairs_file: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    files, planted = faulty
    words = sft_words("smollm2_cpu.yaml", tiny_llama, pairs_file, tmp_path / "run", *files)
    assert preflight.main([*words, "--padding_free", "--packing"]) == 1
    out = capsys.readouterr().out
    assert problems_of(out) == planted
    assert "--packing True is not used here" in out and "3 x too_long" in out and "disk: " in out
    with pytest.raises(SystemExit) as stopped:
        sft.main(words)
    assert stopped.value.code == 2 and problems_of(capsys.readouterr().err) == planted
    assert not (tmp_path / "run").exists()


def test_a_good_run_is_told_what_it_will_take(
    sft_words: Callable[..., list[str]],
    tiny_llama: Path,
    pairs_file: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = sft_words("smollm2_cpu.yaml", tiny_llama, pairs_file, tmp_path / "run", "--warmup_steps", "9")
    assert preflight.main(words) == 0
    out = capsys.readouterr().out
    assert "--warmup_steps 9 fill all 2 steps" in out
    for told in ("12 good rows", ">>> supervised >>>", "a step sees 2", "parameters train", "disk: "):
        assert told in out
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("more", "complaints"),
    [
        (["--train_file", "nowhere.jsonl"], ["no pairs file nowhere.jsonl"]),
        (["--model_name_or_path", "./nowhere"], ["no model folder ./nowhere"]),
        (["--global_batch_size", "3", "--per_device_train_batch_size", "2"], ["may be one of 1, 3"]),
        (["--report_to", "trackio"], ["--report_to trackio: pip install trackio"]),
        (["--load_in_4bit"], ["--load_in_4bit needs --use_peft"]),
        (
            ["--packing", "--max_length", "20", "--report_to", "wandb"],
            ["--packing True is not used here", "12 x too_long", "pip install wandb"],
        ),
    ],
)
def test_settings_are_told_at_once(
    more: list[str],
    complaints: list[str],
    sft_words: Callable[..., list[str]],
    tiny_llama: Path,
    pairs_file: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = sft_words("smollm2_cpu.yaml", tiny_llama, pairs_file, tmp_path / "run", *more)
    assert preflight.main(words) == 1
    out = capsys.readouterr().out
    assert all(complaint in out for complaint in complaints), out


def test_a_full_disk_is_told_before_training(
    sft_words: Callable[..., list[str]],
    tiny_llama: Path,
    pairs_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """tiny_llama: 1.6 M weights in float32, two Adam moments each: 18 MiB a checkpoint, 6 MiB the student."""
    from shutil import _ntuple_diskusage

    monkeypatch.setattr("shutil.disk_usage", lambda place: _ntuple_diskusage(2**30, 2**30, 2**20))
    words = sft_words("smollm2_cpu.yaml", tiny_llama, pairs_file, tmp_path / "run")
    assert preflight.main(words) == 1
    assert "1 checkpoints of 0.02, the student 0.01), and 0.00 GiB are free" in capsys.readouterr().out
