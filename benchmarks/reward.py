"""The likelihood reward of a group: its history read once, against each summary alone and generation.

    python benchmarks/reward.py

Rivals: scoring each summary with a prompt of its own (the same function, one summary at a time), and having
the same model write the hidden blocks out, all summaries in one batch. The first is bounded by the tokens:
(G + 1) (P + x) / (P + (G + 1) x), P what the group shares, x what follows for each summary, and one member
more without a summary.
"""

import argparse
import json
import statistics
import time
from typing import Any

from condensery.compaction import Compaction
from condensery.message import FunctionCall, Message, ToolCall
from modeling.generation import generate
from reconstruct.blocks import blocks_of
from reconstruct.generated import reconstruction_prompt
from reconstruct.instance import Instance
from reconstruct.likelihood import load_reconstructor, score_members, score_summaries, split_request

GROUP, NUM_STEPS = 8, 24


def instance(tokenizer: Any) -> Instance:
    """A history of about 1,000 tokens, a quarter of it hidden."""
    turns = []
    for step in range(NUM_STEPS):
        call = ToolCall(id=f"c{step}", function=FunctionCall(name="search", arguments='{"query": "mill"}'))
        turns.append(Message(role="assistant", content=f"Look for mill {step}.", tool_calls=[call]))
        page = f"The mill of bay {step} was built in {1700 + step}, of grey stone; its keeper is Ann Smith."
        turns.append(Message(role="tool", content=page, tool_call_id=f"c{step}"))
    compaction = Compaction(
        id="c", trajectory_id="t", question_id="q", index=0, task="When were the mills built?", expired=turns
    )
    blocks = blocks_of(compaction, 64, lambda text: len(tokenizer.encode(text, add_special_tokens=False)))
    masks = [list(range(0, len(blocks), 4))]
    return Instance(
        id="i",
        compaction=compaction,
        context_tokens=1024,
        blocks=blocks,
        masks=masks,
        source="",
        language="en",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--num_rounds", type=int, default=3)
    options = parser.parse_args()
    reconstructor = load_reconstructor(options.model, "float32")
    one = instance(reconstructor.tokenizer)
    [mask] = one.masks
    truth = [one.blocks[index].text for index in mask]
    summaries = [f"The mills were built from {1700 + number} on, by Ann Smith." for number in range(GROUP)]
    members: list[tuple[str | None, list[str]]] = [(summary, truth) for summary in [None, *summaries]]
    num_hidden = sum(map(len, (reconstructor.tokenizer.encode(text) for text in truth)))
    seconds: dict[str, list[float]] = {"together": [], "alone": [], "generated": []}
    for _ in range(options.num_rounds):
        started = time.perf_counter()
        score_summaries(reconstructor, one, summaries)
        seconds["together"].append(time.perf_counter() - started)
        started = time.perf_counter()
        for member in members:
            score_members(reconstructor, one, mask, [member])
        seconds["alone"].append(time.perf_counter() - started)
        started = time.perf_counter()
        requests: Any = [reconstruction_prompt(one, mask, summary) for summary in summaries]
        generate(reconstructor.model, reconstructor.tokenizer, requests, num_hidden, batch_size=GROUP)
        seconds["generated"].append(time.perf_counter() - started)
    prefix, rest_of = split_request(reconstructor.tokenizer, one, mask)
    shared = len(prefix)
    follows = len(reconstructor.tokenizer.encode(rest_of(summaries[0]))) + num_hidden
    bound = (GROUP + 1) * (shared + follows) / (shared + (GROUP + 1) * follows)
    ratios = {
        way: sorted(rival / ours for rival, ours in zip(seconds[way], seconds["together"]))
        for way in ("alone", "generated")
    }
    result = {
        "benchmark": "reward",
        "rival": "each summary with a prompt of its own",
        "ratio": round(statistics.median(ratios["alone"]), 2),
        "bound": round(bound, 2),
        "cases": [
            {
                "case": way,
                "ratio": round(statistics.median(of), 2),
                "interval": [round(of[0], 2), round(of[-1], 2)],
                "seconds": round(statistics.median(seconds[way]), 2),
            }
            for way, of in ratios.items()
        ],
        "shared_tokens": shared,
        "tokens_that_follow": follows,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
