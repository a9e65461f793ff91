"""`make demo`: the whole path on one CPU, every stage the real command, printed before it runs.

    python demo.py [--quick] [--logs PATH]

A run lives in runs/demo/<mode>-<number>; an unfinished one is continued, a finished one is followed by the
next number. The report of the newest finished run is copied to runs/demo/.
"""

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from condensery.files.run_directory import write_json
from condensery.trajectory import content_id

ROOT = Path("runs/demo")
BASE = "smollm2-135m-instruct"
TEMPLATE = "compact_v1"
REPORTS = ("report.json", "report.md", "recall.png", "loss.png")


@dataclass(frozen=True)
class Size:
    """How much: questions a web (training, held-out a phrasing, Chinese) or logged runs, and steps."""

    num_train: int
    max_steps: int
    num_held_out: int
    num_chinese: int
    num_logs: int
    max_log_steps: int
    num_held_out_logs: int


FULL = Size(280, 60, 28, 14, num_logs=74, max_log_steps=24, num_held_out_logs=16)
QUICK = Size(48, 10, 6, 3, num_logs=16, max_log_steps=3, num_held_out_logs=4)
# What a model of 135M parameters can tell apart: whom a sentence is about, rather than what it says of them.
EASY_WEB = ("--facts_per_page", "9", "--misleading", "0.4", "--obscure", "0.1")
CONFIG = Path("configs/sft/smollm2_cpu.yaml")


def web_stages(run: Path, size: Size) -> dict[str, list[str]]:
    """Agent runs over offline webs. The held-out webs share no entity and no page with the training web."""
    webs = {
        "train": (size.num_train, 510, ["--seed", "1"]),
        "seen": (size.num_held_out, 510, ["--seed", "2", "--part", "held_out"]),
        "unseen": (size.num_held_out, 510, ["--seed", "3", "--part", "held_out", "--phrasing", "unseen"]),
        # Chinese takes SmolLM2 two tokens a character.
        "zh": (size.num_chinese, 800, ["--seed", "4", "--part", "held_out", "--language", "zh"]),
    }
    stages = {}
    for name, (num_questions, window_tokens, options) in webs.items():
        stages[f"web_{name}"] = ["web", "--num_questions", str(num_questions), *EASY_WEB, *options]
        stages[f"record_{name}"] = [
            *("record", "--questions", f"{run}/web_{name}", "--tokenizer", BASE),
            *("--prompt_template", TEMPLATE, "--window_tokens", str(window_tokens), "--reserve_tokens", "0"),
            *("--search_results", "4", "--snippet_sentences", "1"),
        ]  # fmt: skip
        stages[f"pairs_{name}"] = [
            *("pairs", f"{run}/record_{name}", "--prompt_template", TEMPLATE, "--tokenizer", BASE),
            *("--held_out", "0", "--resume"),
        ]  # fmt: skip
    held_out = ("seen", "unseen", "zh")
    return stages | training_stages(
        run,
        train=f"{run}/pairs_train/train.jsonl",
        compactions=[f"{name}={run}/pairs_{name}/compactions_train.jsonl" for name in held_out],
        references=[f"{run}/pairs_{name}/train.jsonl" for name in held_out],
        options=["--max_steps", str(size.max_steps)],
    )


def log_stages(run: Path, logs: str, size: Size) -> dict[str, list[str]]:
    """The user's logs, summarized by the extractive baseline: a student of it, not of a language model."""
    stages = {
        "import": [
            *("import", logs, "--tokenizer", BASE, "--prompt_template", TEMPLATE, "--on_error", "skip"),
            *("--window_tokens", "4096", "--max_row_tokens", "2048", "--max_summary_tokens", "160"),
            *("--limit", str(size.num_logs)),
        ],
        "pairs": [
            *("pairs", f"{run}/import", "--prompt_template", TEMPLATE, "--tokenizer", BASE),
            *("--held_out", "0.25", "--on_error", "skip", "--resume"),
        ],
    } | training_stages(
        run,
        train=f"{run}/pairs/train.jsonl",
        compactions=[f"{run}/pairs/compactions_held_out.jsonl"],
        references=[f"{run}/pairs/held_out.jsonl"],
        options=["--max_length", "2560", "--max_steps", str(size.max_log_steps)],
    )
    stages["evaluation"] += ["--max_new_tokens", "256", "--limit", str(size.num_held_out_logs)]
    return stages


def training_stages(
    run: Path, train: str, compactions: list[str], references: list[str], options: list[str]
) -> dict[str, list[str]]:
    """From pairs to an export, measured on held-out compactions beside the teacher's summaries."""
    return {
        "preflight": ["preflight", "--config", str(CONFIG), "--train_file", train, *options],
        "sft": ["sft", "--config", str(CONFIG), "--train_file", train, *options],
        "export": ["export", "--checkpoint", f"{run}/sft"],
        "evaluation": [
            *("evaluate", "--base", BASE, "--trained", f"{run}/export", "--dtype", "bfloat16"),
            *("--batch_size", "24"),  # a step of decoding costs little more than with 8
            *("--prompt_template", TEMPLATE),
            *("--compactions", *compactions, "--pairs", *references),
            *("--log_history", f"{run}/sft/log_history.json"),
        ],
    }


def choose_run(mode: str, identity: str) -> Path:
    """The newest run of this mode if it is unfinished and would do the same, else a new number."""
    names = [path.name.removeprefix(f"{mode}-") for path in ROOT.glob(f"{mode}-*")]
    newest = max((int(name) for name in names if name.isdecimal()), default=0)
    run = ROOT / f"{mode}-{newest}"
    if not (run / "evaluation" / "report.md").exists() and read_notes(run).get("identity") == identity:
        return run
    return ROOT / f"{mode}-{newest + 1}"


def read_notes(run: Path) -> dict:
    """What is done of a run: the demo's identity, and seconds by stage. Empty where there are no notes."""
    try:
        notes = json.loads((run / "demo.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return notes if isinstance(notes, dict) else {}


def is_complete(run: Path, name: str, command: list[str]) -> bool:
    """Whether a stage that was not noted had finished: these three write one file last."""
    last_file = {"web": "run.json", "export": "condensery.json", "evaluate": "report.md"}.get(command[0])
    return last_file is not None and (run / name / last_file).exists()


def run_stage(name: str, command: list[str], run: Path) -> None:
    """Run a stage to its end, or leave it where `make demo` can go on."""
    started = (run / name / "run.json").exists()
    words = ["condensery", *command]
    folder = "sft" if name == "preflight" else name  # preflight checks the disk that training will write to
    words += ["--output_dir", f"{run}/{folder}"]
    words += ["--resume"] if started and command[0] in ("record", "import", "sft", "evaluate") else []
    print(f"\n$ {shlex.join(words)}", file=sys.stderr, flush=True)
    done = subprocess.run([sys.executable, "-m", *words], check=False)
    if done.returncode:
        sys.exit(f"demo: stage {name} ended with status {done.returncode}; `make demo` goes on from here")


def run_stages(stages: dict[str, list[str]], run: Path, identity: str) -> float:
    """Run what is not done yet, noting each finished stage; the minutes that all of them took."""
    notes = run / "demo.json"
    seconds = read_notes(run).get("seconds", {})
    run.mkdir(parents=True, exist_ok=True)
    write_json(notes, {"identity": identity, "seconds": seconds})
    for name, command in stages.items():
        if name not in seconds:
            started = time.monotonic()
            if not is_complete(run, name, command):
                run_stage(name, command, run)
            seconds[name] = round(time.monotonic() - started, 1)
            write_json(notes, {"identity": identity, "seconds": seconds})
    return sum(seconds.values()) / 60


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="the same path, much smaller")
    parser.add_argument("--logs", help="a file or folder of agent logs instead of the offline web")
    options = parser.parse_args()
    if options.logs and not Path(options.logs).exists():
        parser.error(f"no file or folder {options.logs}")
    if options.logs:
        options.logs = str(Path(options.logs).resolve())
    os.chdir(Path(__file__).parent)  # configs and runs are the repository's
    size = QUICK if options.quick else FULL
    mode = ("logs" if options.logs else "web") + ("-quick" if options.quick else "")

    def stages_of(run: Path) -> dict[str, list[str]]:
        return log_stages(run, options.logs, size) if options.logs else web_stages(run, size)

    identity = content_id([stages_of(ROOT), CONFIG.read_text()])
    run = choose_run(mode, identity)
    author = "the extractive baseline, without a model" if options.logs else "an oracle that knows the truth"
    print(f"demo: {run}; the summaries to learn from are written by {author}", file=sys.stderr)
    minutes = run_stages(stages_of(run), run, identity)
    for file in REPORTS:
        if (run / "evaluation" / file).exists():
            shutil.copy(run / "evaluation" / file, ROOT / file)
    print(NEXT.format(run=run, root=ROOT, minutes=minutes, bin=Path(sys.executable).parent))


NEXT = """
Done in {minutes:.0f} minutes. The report: {root}/report.md, its plots beside it; the summarizer: {run}/export

Next:
  your own logs    make demo LOGS=path/to/logs
  a teacher model  condensery import LOGS --teacher http://HOST:PORT/v1 --teacher_model NAME --output_dir ...
  on a GPU         accelerate launch distill/sft.py --config configs/sft/qwen3_30b_a3b.yaml --train_file ...
  serving          condensery serve {run}/export      (--python names one with vLLM)

`condensery` is in {bin}; put it on your path with: source {bin}/activate
"""

if __name__ == "__main__":
    main()
