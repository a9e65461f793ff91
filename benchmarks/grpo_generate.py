"""Sampling a group without vLLM: the prompt read once, against TRL's way, the prompt read for each sample.

    python benchmarks/grpo_generate.py

The same model, the same prompt, 8 samples of exactly 64 tokens, in turns. That both sample from one
distribution is tested in tests/modeling/test_shared_generation.py. Bound: as if reading the prompt
were free, the decoding steps alone.
"""

import argparse
import json
import statistics
import time

import torch

from modeling.loading import load_model
from modeling.precision import computed_dtype
from modeling.shared_generation import share_prefill

GROUP, NUM_PROMPT, NUM_NEW = 8, 1024, 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--num_rounds", type=int, default=3)
    options = parser.parse_args()
    models = {way: load_model(options.model, computed_dtype("bfloat16")) for way in ("shared", "plain")}
    share_prefill(models["shared"])
    prompt = torch.randint(3, 49152, (1, NUM_PROMPT), generator=torch.Generator().manual_seed(0))
    rows = prompt.expand(GROUP, -1)
    seconds: dict[str, list[float]] = {"shared": [], "plain": [], "decoding": []}
    for _ in range(options.num_rounds):
        for way, model in models.items():
            seconds[way].append(sample(model, rows, NUM_NEW))
        seconds["decoding"].append(seconds["shared"][-1] - sample(models["shared"], rows, 1))
    ratios = sorted(plain / shared for plain, shared in zip(seconds["plain"], seconds["shared"]))
    medians = {way: statistics.median(of) for way, of in seconds.items()}
    result = {
        "benchmark": "grpo_generate",
        "rival": "generate as TRL calls it",
        "ratio": round(statistics.median(ratios), 2),
        "interval": [round(ratios[0], 2), round(ratios[-1], 2)],
        "bound": round(medians["plain"] / medians["decoding"], 2),
        "cases": [{"case": way, "seconds": round(value, 2)} for way, value in medians.items()],
    }
    print(json.dumps(result))


def sample(model: torch.nn.Module, rows: torch.Tensor, num_new: int) -> float:
    started = time.perf_counter()
    written = model.generate(  # type: ignore[operator]
        input_ids=rows, attention_mask=torch.ones_like(rows), do_sample=True, temperature=1.0, top_k=0,
        top_p=1.0, max_new_tokens=num_new, min_new_tokens=num_new, pad_token_id=2, use_cache=True,
    )  # fmt: skip
    assert written.shape[1] == NUM_PROMPT + num_new
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
