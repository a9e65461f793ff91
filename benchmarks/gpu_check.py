"""What one GPU makes of our code, in minutes and without a network: `make gpu-check`.

    python benchmarks/gpu_check.py                        # one GPU of 80 GB or more
    python benchmarks/gpu_check.py --device cpu --tiny    # the same code, small

Each check prints a line of JSON, the last line is the verdict; the exit status is 0 where all passed.

- sft_step: layers of Qwen3-30B-A3B's shape with random weights, rows of 16k tokens, the shipped recipe. Our
  training against TRL's own SFTTrainer with the same settings on the same rows, in turns, in one process.
- export_proof: a tiny mixture, LoRA on its experts, trained, merged, and proven to be what was trained.
- grpo_update: loss and gradients of a group of 8 on the same layers, its prompt of 4k tokens computed once,
  against TRL's GRPOTrainer, in turns. The bound of the ratio is that of the tokens.
"""

import argparse
import gc
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from grpo_update import GROUP, build_trainer, group, seconds_of_update
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    PreTrainedTokenizerFast,
    PrinterCallback,
    ProgressCallback,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
    TrainerCallback,
    set_seed,
)
from trl import ModelConfig, SFTConfig, SFTTrainer

from condensery.files.config import parse_args
from condensery.summary import wrap_summary
from distill import export, sft
from distill.arguments import SFTArguments
from distill.preflight import prepare
from modeling.chat_template import IGNORED
from modeling.loading import load_model

RECIPE = Path(__file__).parents[1] / "configs" / "sft" / "qwen3_30b_a3b.yaml"
QWEN3_30B_A3B = {  # but for the number of layers, which is 48
    "vocab_size": 151936,
    "hidden_size": 2048,
    "moe_intermediate_size": 768,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "num_hidden_layers": 4,
    "max_position_embeddings": 40960,
    "tie_word_embeddings": False,
}
TINY = QWEN3_30B_A3B | {
    "vocab_size": 512,
    "hidden_size": 64,
    "moe_intermediate_size": 32,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "num_hidden_layers": 2,
}
# Dense bf16, from NVIDIA's data sheets (SXM); a name that is not here gets no utilisation.
PEAK_FLOPS = {"H100": 989e12, "H200": 989e12, "A100": 312e12}
NUM_ROUNDS, NUM_STEPS = 3, 4  # the first step of each round is left out
MAX_SLOWER = 1.1  # times TRL's step
MAX_LOSS_GAP = 0.02  # nats: bf16, sums of atomics in another order
CHAT_TEMPLATE = (
    "{% for turn in messages %}<|im_start|>{{ turn.role }}\n{{ turn.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def main() -> int:
    parser = argparse.ArgumentParser(description="Check training and export on one GPU.")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--tiny", action="store_true", help="a small model and short rows")
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("no GPU is seen by torch; try --device cpu --tiny")
    name = torch.cuda.get_device_name() if options.device == "cuda" else "cpu"
    verdicts = []
    for check in (sft_step, export_proof, grpo_update):
        started = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            try:
                figures = check(options.device, options.tiny, Path(folder))
            except SystemExit:  # a command of ours that has said what is wrong
                figures = {"passed": False}
        seconds = round(time.monotonic() - started, 1)
        print(
            json.dumps({"check": check.__name__, "device": name, **figures, "seconds": seconds}), flush=True
        )
        verdicts.append(figures["passed"])
        free_memory()
    print(f"gpu-check: {'passed' if all(verdicts) else 'FAILED'} ({sum(verdicts)} of {len(verdicts)} checks)")
    return 0 if all(verdicts) else 1


def sft_step(device: str, tiny: bool, folder: Path) -> dict[str, Any]:
    """Tokens per second, utilisation and peak memory of both, and their ratio.

    Passed: the same losses, and on a GPU, whose time nobody shares, a step hardly slower than TRL's.
    """
    shape, num_tokens, num_rounds = (TINY, 512, 1) if tiny else (QWEN3_30B_A3B, 16384, NUM_ROUNDS)
    model = write_model(folder / "model", shape, device)
    train_file = write_rows(folder / "train.jsonl", num_tokens)
    arguments, training, model_config = parse_args(
        *(SFTArguments, SFTConfig, ModelConfig),
        argv=[
            *words(device, model, train_file, folder / "run"),
            *("--max_length", str(num_tokens), "--max_steps", str(NUM_STEPS), "--save_strategy", "no"),
        ],
    )
    prepared, findings = prepare(arguments, training, model_config)
    findings.stop_if_any()
    rows = prepared.datasets["train"]

    def ours() -> Any:
        return sft.build_trainer(arguments, training, model_config, prepared)

    def theirs() -> Any:
        settings = {"output_dir": str(folder / "theirs"), "max_length": None, "use_cpu": device == "cpu"}
        settings |= {"per_device_train_batch_size": 1, "max_steps": NUM_STEPS, "logging_steps": 1}
        settings |= {"learning_rate": training.learning_rate, "warmup_steps": training.warmup_steps}
        settings |= {"lr_scheduler_type": "cosine", "seed": 0, "report_to": "none", "save_strategy": "no"}
        trainer = SFTTrainer(
            model=Qwen3MoeForCausalLM.from_pretrained(model, dtype="bfloat16"),
            args=SFTConfig(**settings, bf16=True, gradient_checkpointing=True),
            train_dataset=rows,
            processing_class=prepared.tokenizer,
        )
        for printing in (PrinterCallback, ProgressCallback):
            trainer.remove_callback(printing)
        return trainer

    runs = in_turns({"ours": ours, "trl": theirs}, num_rounds)
    seconds = {name: statistics.median(run.seconds) for name, run in runs.items()}
    length = statistics.mean(map(len, rows["input_ids"]))
    num_flops = statistics.mean(flops_of_step(shape, row["labels"]) for row in rows)
    peak = next((flops for name, flops in PEAK_FLOPS.items() if name in device_name(device)), None)
    first_losses = {name: run.losses[:NUM_STEPS] for name, run in runs.items()}
    gap = max(abs(a - b) for a, b in zip(first_losses["ours"], first_losses["trl"], strict=True))
    ratio = seconds["trl"] / seconds["ours"]
    return {
        "layers": shape["num_hidden_layers"],
        "tokens_per_row": round(length),
        "ratio": round(ratio, 3),
        "tokens_per_second": {name: round(length / value) for name, value in seconds.items()},
        "seconds_per_step": {name: round(value, 4) for name, value in seconds.items()},
        "mfu": {name: round(num_flops / value / peak, 3) for name, value in seconds.items()}
        if peak
        else None,
        "peak_memory_gib": {name: run.peak_memory for name, run in runs.items()},
        "planned_memory_gib": round(prepared.memory.total / 2**30, 2),
        "loss": round(first_losses["ours"][-1], 4),
        "loss_gap": round(gap, 5),
        "passed": gap < MAX_LOSS_GAP and (device == "cpu" or ratio > 1 / MAX_SLOWER),
    }


class Run(TrainerCallback):
    """Seconds of each step but the first of a round, losses, and GiB that this trainer held at most."""

    def __init__(self, build: Callable[[], Any]) -> None:
        self.seconds: list[float] = []
        self.losses: list[float] = []
        self.started, self.peak_memory = 0.0, None
        before = allocated()
        self.trainer = build()
        self.trainer.add_callback(self)
        self.trainer.train()
        if torch.cuda.is_available():
            self.peak_memory = round((torch.cuda.max_memory_allocated() - before) / 2**30, 2)
            torch.cuda.reset_peak_memory_stats()
        self.seconds.clear()  # kernels were compiled, memory was asked for

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        synchronize()
        self.started = time.perf_counter()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        synchronize()
        if state.global_step > 1:
            self.seconds.append(time.perf_counter() - self.started)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float], **kwargs: Any) -> None:
        self.losses += [logs["loss"]] if "loss" in logs else []


def in_turns(builders: dict[str, Callable[[], Any]], num_rounds: int) -> dict[str, Run]:
    """Each is built and trains once, for its losses and its memory; then they train in turns, for times."""
    runs = {name: Run(build) for name, build in builders.items()}
    for _ in range(num_rounds):
        for run in runs.values():
            run.trainer.train()
    return runs


def export_proof(device: str, tiny: bool, folder: Path) -> dict[str, Any]:
    """Passed: the export says so, having been loaded again and compared tensor by tensor."""
    model = write_model(folder / "model", TINY, device)
    train_file = write_rows(folder / "train.jsonl", 512)
    lora = ["--use_peft", "--lora_target_modules", "q_proj", "v_proj", "--lora_dropout", "0"]
    lora += ["--lora_target_parameters", "mlp.experts.gate_up_proj", "mlp.experts.down_proj"]
    argv = [*words(device, model, train_file, folder / "run"), *lora, "--max_steps", "2"]
    sft.main([*argv, "--warmup_steps", "0", "--learning_rate", "1e-2"])
    export.main(["--checkpoint", str(folder / "run"), "--output_dir", str(folder / "export")])
    proof = json.loads((folder / "export" / "condensery.json").read_text())["proof"]
    return {
        "drift_nats": proof["drift"]["mean"],
        "change_nats": proof["change"]["mean"],
        "tensors_changed": proof["tensors"]["num_changed"],
        "tensors_expected": proof["tensors"]["num_expected"],
        "passed": True,  # an export that is not proven ends its command
    }


def grpo_update(device: str, tiny: bool, folder: Path) -> dict[str, Any]:
    """Passed: the same log-probabilities, and on a GPU a faster update."""
    shape, num_prompt, num_completion = (TINY, 64, 8) if tiny else (QWEN3_30B_A3B, 4096, 512)
    place = write_model(folder / "model", shape, device)
    settings = {"use_cpu": device == "cpu", "bf16": True}
    trainers = {
        way: build_trainer(
            way, load_model(str(place), "bfloat16").to(device), byte_tokenizer(), True, **settings
        )
        for way in ("ours", "trl")
    }
    inputs = group(num_prompt, num_completion, shape["vocab_size"], device)
    rows = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1)
    asked = (rows, torch.ones_like(rows), num_completion)
    logprobs, seconds, peak = {}, {"ours": [], "trl": []}, {}
    for way, trainer in trainers.items():
        with torch.no_grad():
            logprobs[way], *_ = trainer._get_per_token_logps_and_entropies(trainer.model, *asked)
    for _ in range(NUM_ROUNDS):
        for way, trainer in trainers.items():
            free_memory()
            before = allocated()
            seconds[way].append(seconds_of_update(trainer, inputs, synchronize))
            if torch.cuda.is_available():
                peak[way] = round((torch.cuda.max_memory_allocated() - before) / 2**30, 2)
                torch.cuda.reset_peak_memory_stats()
            trainer.model.zero_grad()
    middle = {way: statistics.median(of_way[1:]) for way, of_way in seconds.items()}
    gap = float((logprobs["ours"].float() - logprobs["trl"].float()).abs().mean())
    ratio = middle["trl"] / middle["ours"]
    bound = GROUP * (num_prompt + num_completion) / (num_prompt + GROUP * num_completion)
    return {
        "layers": shape["num_hidden_layers"],
        "prompt_and_completion": [num_prompt, num_completion],
        "ratio": round(ratio, 3),
        "bound": round(bound, 2),
        "seconds": {way: round(value, 4) for way, value in middle.items()},
        "peak_memory_gib": peak,
        "logprob_gap": round(gap, 5),
        "passed": gap < MAX_LOSS_GAP and (device == "cpu" or ratio > 1),
    }


def words(device: str, model: Path, train_file: Path, output_dir: Path) -> list[str]:
    """The recipe on a model without a thought and rows of one step each."""
    return [
        *("--config", str(RECIPE), "--model_name_or_path", str(model), "--train_file", str(train_file)),
        *("--output_dir", str(output_dir), "--thinking", "none", "--global_batch_size", "1"),
        *("--use_cpu", "true" if device == "cpu" else "false"),
    ]


def write_model(folder: Path, shape: dict[str, Any], device: str) -> Path:
    """Random bf16 weights, and a tokenizer whose tokens are bytes."""
    tokenizer = byte_tokenizer()
    set_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device(device):
        model = Qwen3MoeForCausalLM(
            Qwen3MoeConfig(**shape, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id)
        )
    torch.set_default_dtype(torch.float32)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    del model
    free_memory()
    return folder


def byte_tokenizer() -> PreTrainedTokenizerFast:
    special = ["<|im_start|>", "<|im_end|>", "<|endoftext|>"]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: number for number, token in enumerate([*alphabet, *special])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=["<|im_start|>"],
        chat_template=CHAT_TEMPLATE,
    )


def write_rows(path: Path, num_tokens: int) -> Path:
    """Pairs that fill `num_tokens` almost, a sixteenth of them supervised; a byte is a token."""
    rows = []
    for number in range(NUM_STEPS):
        summary = wrap_summary(f"Bridge {number} is {number * 7 + 100} m long. " * (num_tokens // 16 // 27))
        fact = f"Page {number}: the bridge is {number * 7 + 100} m long. "
        prompt = fact * ((num_tokens - len(summary) - 100) // len(fact))
        rows.append(
            {
                "id": f"pair-{number}",
                "prompt": [{"role": "user", "content": prompt}],
                "completion": [{"role": "assistant", "content": summary}],
                "prompt_template": "compact_v1",
            }
        )
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def flops_of_step(shape: dict[str, Any], labels: list[int]) -> float:
    """Of the model, forward and backward, without what checkpointing does twice.

    6 for each weight that a token meets; causal attention 6 x T^2 x heads x head size a layer; the head works
    on supervised tokens alone.
    """
    hidden, heads = shape["hidden_size"], shape["num_attention_heads"] * shape["head_dim"]
    attention = hidden * (2 * heads + 2 * shape["num_key_value_heads"] * shape["head_dim"])
    experts = 3 * hidden * shape["moe_intermediate_size"] * shape["num_experts_per_tok"]
    router = hidden * shape["num_experts"]
    layer = 6 * len(labels) * (attention + experts + router) + 6 * len(labels) ** 2 * heads
    num_supervised = sum(label != IGNORED for label in labels)
    return float(shape["num_hidden_layers"] * layer + 6 * num_supervised * hidden * shape["vocab_size"])


def device_name(device: str) -> str:
    return torch.cuda.get_device_name() if device == "cuda" else "cpu"


def allocated() -> int:
    return torch.cuda.memory_allocated() if torch.cuda.is_available() else 0


def synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def free_memory() -> None:
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


if __name__ == "__main__":
    sys.exit(main())
