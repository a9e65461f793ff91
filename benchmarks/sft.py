"""Fine-tuning on a CPU: `condensery sft` against `trl sft`, on the same model and the same rows.

    condensery import logs/ --output_dir runs/import --tokenizer smollm2-135m-instruct --window_tokens 2048 \\
        --max_row_tokens 2048
    condensery pairs runs/import --output_dir runs/pairs
    python benchmarks/sft.py --pairs runs/pairs/train.jsonl

Two rivals: TRL as its defaults run it, and with the flags that an expert would set on a CPU. All three run in
turn, each in a process of its own; a round gives one ratio of tokens of text (padding is none) per second
of training, and the interval is bootstrapped over rounds. TRL is given our tokens, so that losses can be
compared step by step: rendering itself, it would supervise the template's newline after the stop token, too,
which no server writes. Then the peak memory of one step on one long row, with a vocabulary of Qwen's size.
"""

import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from condensery.files.config import parse_args
from condensery.files.jsonl import read_jsonl
from evaluation.aggregate import ratio_with_interval
from modeling.chat_template import RenderedPair, render_pair
from modeling.precision import cpu_has_bf16

GLOBAL_BATCH_SIZE = 8
VOCABULARY, NUM_LONG_ROW_TOKENS, NUM_LAYERS_OF_LONG_ROW = 151_936, 8192, 4
TRL_DEFAULTS = "--per_device_train_batch_size 8"
TRL_EXPERT = "--per_device_train_batch_size 1 --gradient_accumulation_steps 8 --gradient_checkpointing false"
OURS = "--per_device_train_batch_size 1 --global_batch_size 8 --gradient_checkpointing false"
CONTENDERS = {"ours": OURS, "trl_defaults": TRL_DEFAULTS, "trl_expert": TRL_EXPERT}
# Memory first: what each offers when one long row is to fit.
LONG_ROW = {
    "ours": "--per_device_train_batch_size 1 --global_batch_size 1 --gradient_checkpointing true",
    "trl": "--per_device_train_batch_size 1 --gradient_checkpointing true",
}
SHARED = (
    "--learning_rate 1e-5 --lr_scheduler_type constant --use_cpu true --dtype float32 --seed 0"
    f" --bf16 {cpu_has_bf16()}"  # without such instructions it is slower by far, for both
)
SHARED += " --logging_steps 1 --save_strategy no --report_to none"


@dataclass
class Config:
    """What is trained on, and how long."""

    pairs: Path = field(metadata={"help": "pairs, from `condensery pairs`"})
    model: str = field(default="smollm2-135m-instruct", metadata={"help": "the student"})
    max_length: int = field(default=2048, metadata={"help": "longest row"})
    num_steps: int = field(default=3, metadata={"help": "steps of 8 rows in a run", "minimum": 1})
    num_rounds: int = field(default=4, metadata={"help": "runs of each contender", "minimum": 2})
    skip_memory: bool = field(default=False, metadata={"help": "throughput alone"})


@dataclass
class Run:
    """One training run. `peak`: bytes."""

    train_seconds: float
    wall_seconds: float
    losses: list[float]
    peak: int


def main() -> None:
    config = parse_args(Config, prog="benchmarks/sft.py", description=__doc__ or "", example="")
    with tempfile.TemporaryDirectory() as folder:
        result = compare_throughput(config, Path(folder))
        if not config.skip_memory:
            result["long_row"] = compare_memory(config, Path(folder))
    print(json.dumps(result))


def compare_throughput(config: Config, folder: Path) -> dict[str, Any]:
    from modeling.loading import load_tokenizer, resolve_model
    from modeling.row_checks import check_rows

    model = str(resolve_model(config.model))
    pairs = read_jsonl(config.pairs)
    num_rows = GLOBAL_BATCH_SIZE * config.num_steps
    checked = check_rows(
        [(str(number), row) for number, row in enumerate(pairs)], load_tokenizer(model), config.max_length
    )
    places = random.Random(0).sample(sorted(checked.pairs), num_rows)
    lengths = [len(checked.pairs[place].input_ids) for place in places]
    write_rows(folder, [pairs[int(place)] for place in places], [checked.pairs[place] for place in places])
    runs: dict[str, list[Run]] = {name: [] for name in CONTENDERS}
    flags = f"{SHARED} --max_length {config.max_length} --max_steps {config.num_steps}"
    for number in range(config.num_rounds):
        order = list(CONTENDERS)[number % 3 :] + list(CONTENDERS)[: number % 3]
        for name in order:
            runs[name].append(train(name, model, folder, f"{flags} {CONTENDERS[name]}"))
            run = runs[name][-1]
            rate = sum(lengths) / run.train_seconds
            say(f"round {number + 1}: {name} {rate:.0f} tokens/s, losses {run.losses}")
    seconds = {name: [run.train_seconds for run in of_case] for name, of_case in runs.items()}
    ratios = {
        rival: ratio_with_interval(seconds[rival], seconds["ours"])
        for rival in ("trl_defaults", "trl_expert")
    }
    return {
        "benchmark": "sft",
        "rival": "trl sft",
        "ratio": ratios["trl_expert"][0],
        "ratios": ratios,
        "rows": num_rows,
        "lengths": {"min": min(lengths), "mean": round(sum(lengths) / num_rows), "max": max(lengths)},
        "cases": [
            {
                "case": name,
                "flags": CONTENDERS[name],
                "tokens_per_second": round(sum(lengths) * config.num_rounds / sum(seconds[name]), 1),
                "other_seconds": round(min(run.wall_seconds - run.train_seconds for run in of_case), 1),
                "peak_gib": round(max(run.peak for run in of_case) / 2**30, 2),
                "losses": of_case[0].losses,
            }
            for name, of_case in runs.items()
        ],
        "shared_flags": flags,
    }


def compare_memory(config: Config, folder: Path) -> dict[str, Any]:
    """One step on one row of 8k tokens; a few layers, so that the vocabulary weighs what it weighs in a large
    model."""
    from transformers import AutoConfig, AutoModelForCausalLM

    from modeling.loading import load_tokenizer, resolve_model

    long_row = folder / "long"
    model = str(folder / "wide_vocabulary")
    tokenizer = load_tokenizer(str(resolve_model(config.model)))
    shape = AutoConfig.from_pretrained(resolve_model(config.model))
    shape.vocab_size, shape.num_hidden_layers = VOCABULARY, NUM_LAYERS_OF_LONG_ROW
    AutoModelForCausalLM.from_config(shape).save_pretrained(model)
    tokenizer.save_pretrained(model)
    pairs = read_jsonl(config.pairs)
    row = pairs[0]
    text = "\n".join(message["content"] for pair in pairs for message in pair["prompt"])
    room = NUM_LONG_ROW_TOKENS - len(tokenizer(row["completion"][0]["content"])["input_ids"]) - 100
    ids = tokenizer(text, add_special_tokens=False)["input_ids"][:room]
    row = {**row, "prompt": [{"role": "user", "content": tokenizer.decode(ids)}]}
    write_rows(long_row, [row], [render_pair(tokenizer, row["prompt"], row["completion"])])
    flags = f"{SHARED} --max_length {NUM_LONG_ROW_TOKENS} --max_steps 1"
    peaks = {name: train(name, model, long_row, f"{flags} {LONG_ROW[name]}").peak for name in LONG_ROW}
    return {
        "tokens": NUM_LONG_ROW_TOKENS,
        "vocabulary": VOCABULARY,
        "peak_gib": {name: round(peak / 2**30, 2) for name, peak in peaks.items()},
        "ratio": round(peaks["ours"] / peaks["trl"], 3),
        "flags": LONG_ROW,
    }


def write_rows(folder: Path, rows: list[dict[str, Any]], rendered: list[RenderedPair]) -> None:
    """For us as they are; for TRL as tokens."""
    tokens = [{"input_ids": pair.input_ids, "labels": pair.labels} for pair in rendered]
    for name, of_contender in (("ours", rows), ("trl", tokens)):
        (folder / name).mkdir(parents=True)
        with open(folder / name / "train.jsonl", "w", encoding="utf-8") as file:
            file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in of_contender)


def train(name: str, model: str, folder: Path, flags: str) -> Run:
    """Train in a process of its own and read what it says."""
    scripts = Path(sys.executable).parent
    with tempfile.TemporaryDirectory() as output_dir:
        if name == "ours":
            command = [
                sys.executable,
                "-m",
                "condensery",
                "sft",
                "--train_file",
                f"{folder}/ours/train.jsonl",
            ]
        else:
            command = [
                str(scripts / "trl"),
                "sft",
                "--dataset_name",
                f"{folder}/trl",
                "--disable_tqdm",
                "true",
            ]
        command += ["--model_name_or_path", model, "--output_dir", output_dir, *flags.split()]
        # accelerate, which `trl` starts, sets one thread where it is not told otherwise.
        environment = {**os.environ, "OMP_NUM_THREADS": str(os.cpu_count()), "HF_HUB_OFFLINE": "1"}
        started = time.perf_counter()
        with tempfile.TemporaryFile("w+") as log:
            process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment)
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            seconds = time.perf_counter() - started
            log.seek(0)
            said = log.read()
        if process.returncode:
            sys.exit(f"{' '.join(command)}\n{said[-3000:]}")
        if name == "ours":
            history = json.loads((Path(output_dir) / "log_history.json").read_text())
            losses = [entry["loss"] for entry in history if "loss" in entry]
            train_seconds = next(entry["train_runtime"] for entry in history if "train_runtime" in entry)
        else:
            losses = [float(value) for value in re.findall(r"'loss': '?([\d.]+)", said)]
            train_seconds = float(re.findall(r"'train_runtime': '?([\d.]+)", said)[0])
    return Run(train_seconds, seconds, losses, used.ru_maxrss * 1024)


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
