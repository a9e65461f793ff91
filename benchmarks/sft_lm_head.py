"""Fine-tuning on a CPU: scoring supervised positions only, against TRL's fused head as it comes.

    python benchmarks/sft_lm_head.py

The shape of the demo's rows: a long prompt, a short summary. Both ways run in turn in one process, and the
ratio is taken of the fastest passes, since machines are noisy. The bound is a pass whose loss needs no head.
"""

import json
import time
from collections.abc import Callable

import torch
from transformers import LlamaConfig, LlamaForCausalLM, set_seed
from trl.trainer import utils

from modeling.chat_template import IGNORED
from modeling.lm_head import score_supervised_positions_only

NUM_PROMPT_TOKENS, NUM_COMPLETION_TOKENS, NUM_PASSES = 624, 76, 4
# SmolLM2-135M's shape with a third of its layers: a minute instead of three.
SHAPE = {
    "vocab_size": 49152,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 10,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "tie_word_embeddings": True,
}


def seconds_of(model: LlamaForCausalLM, loss_of: Callable[[], torch.Tensor]) -> float:
    """One forward and backward pass."""
    started = time.perf_counter()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = loss_of()
    loss.backward()
    model.zero_grad()
    return time.perf_counter() - started


def main() -> None:
    set_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**SHAPE))
    utils.add_fused_lm_head(model)
    input_ids = torch.randint(100, 49000, (1, NUM_PROMPT_TOKENS + NUM_COMPLETION_TOKENS))  # (B, T)
    labels = input_ids.clone()
    labels[:, :NUM_PROMPT_TOKENS] = IGNORED

    def fused_loss() -> torch.Tensor:
        return model(input_ids=input_ids, labels=labels, fused_lm_head=True).loss

    def no_head() -> torch.Tensor:
        return model.model(input_ids=input_ids).last_hidden_state.float().square().mean()

    every_position = utils._use_triton
    fastest = {"every position": float("inf"), "supervised only": float("inf"), "no head": float("inf")}
    for _ in range(NUM_PASSES):
        utils._use_triton = every_position
        fastest["every position"] = min(fastest["every position"], seconds_of(model, fused_loss))
        score_supervised_positions_only()
        fastest["supervised only"] = min(fastest["supervised only"], seconds_of(model, fused_loss))
        fastest["no head"] = min(fastest["no head"], seconds_of(model, no_head))
    cases = [{"case": name, "seconds": round(value, 3)} for name, value in fastest.items()]
    result = {
        "benchmark": "sft_lm_head",
        "rival": "TRL's fused head on a CPU",
        "ratio": round(fastest["every position"] / fastest["supervised only"], 2),
        "bound": round(fastest["every position"] / fastest["no head"], 2),
        "cases": cases,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
