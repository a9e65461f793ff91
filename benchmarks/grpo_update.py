"""One GRPO update of a group: the prompt computed once, against TRL's GRPOTrainer, the prompt in each row.

    python benchmarks/grpo_update.py
    python benchmarks/grpo_update.py --cases 1024/64 --num_rounds 3

Loss and gradients of one micro-batch, a group of 8, in float32 on the same tokens. Each run is a process of
its own, in turns; the ratio is the median over rounds of TRL's seconds over ours. The bound is that of the
tokens: G (P + c) / (P + G c). `gradient_error` is |ours - TRL's| / |TRL's| over all parameters. The tiny
models have random weights: a mixture of experts, and a hybrid with gated delta nets.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

GROUP = 8
# model, prompt and completion tokens, gradient checkpointing (where plain rows would not fit without)
CASES = {
    "512/64": ("smollm2-135m-instruct", 512, 64, False),
    "1024/64": ("smollm2-135m-instruct", 1024, 64, False),
    "4096/128": ("smollm2-135m-instruct", 4096, 128, True),
    "mixture": ("tiny_mixture", 1024, 64, False),
    "hybrid": ("tiny_hybrid", 1024, 64, False),
}
TINY = {
    "vocab_size": 49152,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 2,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--num_rounds", type=int, default=3)
    parser.add_argument("--worker", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        way, case, gradients = options.worker
        print(json.dumps(update(way, *CASES[case], Path(gradients))))
        return
    cases = [measure(case, options.num_rounds) for case in options.cases]
    result = {
        "benchmark": "grpo_update",
        "rival": "trl GRPOTrainer",
        "ratio": statistics.median(case["ratio"] for case in cases),
        "bound": statistics.median(case["bound"] for case in cases),
        "cases": cases,
    }
    print(json.dumps(result))


def measure(case: str, num_rounds: int) -> dict[str, Any]:
    """Both ways in turn, each in a process of its own."""
    _, prompt, completion, _ = CASES[case]
    runs: dict[str, list[dict[str, float]]] = {"ours": [], "trl": []}
    with tempfile.TemporaryDirectory() as folder:
        files = {way: Path(folder) / f"{way}.pt" for way in runs}
        for number in range(num_rounds):
            for way in sorted(runs, reverse=bool(number % 2)):
                command = [sys.executable, __file__, "--worker", way, case, str(files[way])]
                done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
                runs[way].append(json.loads(done.stdout.splitlines()[-1]))
                print(f"{case} round {number + 1} {way}: {runs[way][-1]}", file=sys.stderr, flush=True)
        error = gradient_error(files["ours"], files["trl"])
    ratios = sorted(one["seconds"] / other["seconds"] for one, other in zip(runs["trl"], runs["ours"]))
    bound = GROUP * (prompt + completion) / (prompt + GROUP * completion)
    ratio = statistics.median(ratios)
    return {
        "case": case,
        "ratio": round(ratio, 2),
        "interval": [round(ratios[0], 2), round(ratios[-1], 2)],
        "bound": round(bound, 2),
        "share_of_bound": round(ratio / bound, 2),
        "gradient_error": error,
        "seconds": {
            way: round(statistics.median(run["seconds"] for run in of), 2) for way, of in runs.items()
        },
        "peak_gib": {way: max(run["peak_gib"] for run in of) for way, of in runs.items()},
    }


def gradient_error(ours: Path, theirs: Path) -> float:
    import torch

    one, other = torch.load(ours), torch.load(theirs)
    return float((one - other).norm() / other.norm())


def update(
    way: str, name: str, num_prompt: int, num_completion: int, checkpointing: bool, gradients: Path
) -> dict[str, float]:
    """Loss and gradients of one group; a short one before it warms up what is measured."""
    import torch

    from modeling.loading import load_tokenizer
    from modeling.memory import peak_memory

    tokenizer = load_tokenizer("smollm2-135m-instruct")
    trainer = build_trainer(way, load(name), tokenizer, checkpointing, use_cpu=True, bf16=False)
    for length in (16, num_prompt):
        seconds = seconds_of_update(trainer, group(length, min(length, num_completion)))
    vector = [weight.grad.flatten() for weight in trainer.model.parameters() if weight.grad is not None]
    peak = peak_memory()
    torch.save(torch.cat(vector), gradients)
    return {"seconds": round(seconds, 3), "peak_gib": round(peak / 2**30, 2)}


def build_trainer(way: str, model: Any, tokenizer: Any, checkpointing: bool, **settings: bool) -> Any:
    """Ours or TRL's, ready for `compute_loss`."""
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    from modeling.lm_head import score_supervised_positions_only
    from reconstruct.grpo_trainer import SharedPromptTrainer

    if way == "ours":
        score_supervised_positions_only()
    trainer_class = SharedPromptTrainer if way == "ours" else GRPOTrainer
    with tempfile.TemporaryDirectory() as folder:
        trainer: Any = trainer_class(
            model=model,
            reward_funcs=lambda completions, **_: [0.0] * len(completions),
            args=GRPOConfig(
                output_dir=folder, per_device_train_batch_size=GROUP, num_generations=GROUP,
                gradient_checkpointing=checkpointing, report_to="none", router_aux_loss_coef=0.0, **settings,
            ),
            train_dataset=Dataset.from_list([{"prompt": "-"}] * GROUP),
            processing_class=tokenizer,
        )  # fmt: skip
    trainer.current_gradient_accumulation_steps = 1
    trainer.model.train()
    if checkpointing:  # Trainer.train does this, which is not called here
        trainer.model.gradient_checkpointing_enable({"use_reentrant": False})
    return trainer


def seconds_of_update(
    trainer: Any, inputs: dict[str, Any], synchronize: Callable[[], None] = lambda: None
) -> float:
    """`synchronize` waits for a GPU."""
    trainer.model.zero_grad()
    synchronize()
    started = time.perf_counter()
    trainer.compute_loss(trainer.model, inputs).backward()
    synchronize()
    return time.perf_counter() - started


def load(name: str) -> Any:
    import transformers

    from modeling.loading import load_model

    transformers.set_seed(0)
    if name == "tiny_mixture":
        experts = {"moe_intermediate_size": 64, "num_experts": 8, "num_experts_per_tok": 2}
        return transformers.Qwen3MoeForCausalLM(transformers.Qwen3MoeConfig(**TINY, **experts))
    if name == "tiny_hybrid":
        linear = {"linear_num_key_heads": 4, "linear_num_value_heads": 4}
        linear |= {"linear_key_head_dim": 32, "linear_value_head_dim": 32}
        layers = ["linear_attention", "linear_attention", "linear_attention", "full_attention"]
        config = transformers.Qwen3_5TextConfig(**TINY, **linear, layer_types=layers)
        return transformers.Qwen3_5ForCausalLM(config)
    return load_model(name, "float32")


def group(
    num_prompt: int, num_completion: int, num_words: int = 49152, device: str = "cpu"
) -> dict[str, Any]:
    """A group as the trainer prepares it: random tokens, full completions."""
    import torch

    generator = torch.Generator().manual_seed(0)
    prompt = torch.randint(3, num_words, (1, num_prompt), generator=generator).expand(GROUP, -1).to(device)
    completions = torch.randint(3, num_words, (GROUP, num_completion), generator=generator).to(device)
    return {
        "prompt_ids": prompt,
        "prompt_mask": torch.ones_like(prompt),
        "completion_ids": completions,
        "completion_mask": torch.ones_like(completions),
        "advantages": torch.linspace(-1, 1, GROUP, device=device),
        "num_items_in_batch": torch.tensor(float(completions.numel()), device=device),
    }


if __name__ == "__main__":
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    main()
