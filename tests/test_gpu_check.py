"""`make gpu-check` on a CPU: the same code, small. What it says of a GPU only a GPU can say."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
def test_every_check_prints_its_figures_and_the_last_line_the_verdict() -> None:
    command = [sys.executable, "benchmarks/gpu_check.py", "--device", "cpu", "--tiny"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    *lines, verdict = done.stdout.splitlines()
    step, proof, update = map(json.loads, lines)
    assert [each["check"] for each in (step, proof, update)] == ["sft_step", "export_proof", "grpo_update"]
    assert step["loss_gap"] < 0.02 and step["mfu"] is None and min(step["tokens_per_second"].values()) > 0
    assert proof["tensors_changed"] == proof["tensors_expected"] == 8
    assert update["logprob_gap"] < 0.02 and update["bound"] == 4.5 and update["ratio"] > 0
    assert verdict == "gpu-check: passed (3 of 3 checks)"
