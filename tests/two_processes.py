"""Training entries on two gloo processes of this machine, with whole copies (DDP) or shards (FSDP2)."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
DDP = ["--multi_gpu", "--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no"]
FSDP2 = ["--config_file", "configs/accelerate/fsdp2.yaml", "--mixed_precision", "no"]


def on_two_processes(module: str, *words: str) -> str:
    """What the processes say on stderr."""
    done = subprocess.run(
        [sys.executable, "-m", module, *words],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stderr


def launch(way: list[str], script: str, words: list[str]) -> str:
    """Through `accelerate launch`, on a port that is free."""
    options = [*way, "--num_processes", "2", "--main_process_port", "0"]
    return on_two_processes("accelerate.commands.launch", *options, script, *words)
