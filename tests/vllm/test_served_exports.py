"""`make vllm-check`: vLLM serves what was trained, and can take the place of ReSum's summary server."""

import json
import re
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from condensery.cli import main as condensery
from condensery.files.jsonl import read_jsonl
from distill.proof import fixed_logprobs, fixed_pairs
from distill.serve import ServeConfig
from modeling.chat_template import RenderedPair
from modeling.loading import load_model_and_tokenizer

pytestmark = pytest.mark.vllm
NUM_HISTORIES, MIN_SUMMARIES = 20, 19


def post(server: ServeConfig, path: str, body: dict) -> dict:
    """With the empty Authorization header that ReSum's client sends."""
    request = urllib.request.Request(
        f"http://{server.host}:{server.port}/v1/{path}",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json", "Authorization": ""},
    )
    with urllib.request.urlopen(request, timeout=600) as answer:
        return json.load(answer)


def served_logprobs(server: ServeConfig, pair: RenderedPair) -> list[float]:
    body = {"model": str(server.model), "prompt": pair.input_ids, "max_tokens": 1, "prompt_logprobs": 0}
    [choice] = post(server, "completions", body)["choices"]
    by_position = choice["prompt_logprobs"][pair.num_prompt_tokens :]
    return [entry[str(token)]["logprob"] for entry, token in zip(by_position, pair.completion_ids)]


def check_logprobs(server: ServeConfig, run: Path) -> None:
    """Against the trained run: for LoRA, the adapter on its base, before any merge."""
    model, tokenizer = load_model_and_tokenizer(str(run), "float32")
    pairs = fixed_pairs(tokenizer, "none")
    served = torch.tensor([value for pair in pairs for value in served_logprobs(server, pair)])
    difference = (fixed_logprobs(model, pairs) - served).abs().max().item()
    print(f"trained and served differ by {difference:.1e} nats at most over {len(served)} tokens")
    assert difference <= 1e-4


def test_served_mixture_equals_the_trained(mixture: Any, serve: Any) -> None:
    with serve(mixture.export) as server:
        check_logprobs(server, mixture.run)


def test_served_summarizer_equals_the_trained(summarizer: Any, summarizer_server: ServeConfig) -> None:
    check_logprobs(summarizer_server, summarizer.run)


def read_as_resum(content: str) -> str | None:
    """What ReSum's client takes, closed thinking dropped; None if there is not just one block."""
    text = re.sub(r"<think>.*?</think>", "", content, flags=re.DOTALL)
    blocks = re.findall(r"<summary>(.*?)</summary>", text, flags=re.DOTALL)
    return blocks[0].strip() if len(blocks) == 1 and text.count("<summary>") == 1 else None


def test_wire_protocol_gets_one_summary(summarizer_server: ServeConfig, held_out_pairs: Path) -> None:
    prompts = [row["prompt"][0]["content"] for row in read_jsonl(held_out_pairs)][:NUM_HISTORIES]
    assert len(prompts) == NUM_HISTORIES

    def ask(prompt: str) -> str:
        body = {
            "model": str(summarizer_server.model),
            "messages": [{"role": "user", "content": prompt}],
            **{"max_tokens": 4096, "temperature": 0.6, "top_p": 0.95},
        }
        return post(summarizer_server, "chat/completions", body)["choices"][0]["message"]["content"]

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ask, prompts))
    accepted = [answer for answer in answers if read_as_resum(answer)]
    print(f"{len(accepted)} of {len(answers)} answers hold exactly one non-empty summary")
    assert len(accepted) >= MIN_SUMMARIES, [a for a in answers if a not in accepted]


def test_resum_rollout_with_the_served_summarizer(
    summarizer_server: ServeConfig, held_out_pairs: Path, tmp_path: Path
) -> None:
    web = held_out_pairs.parents[1] / "web_held_out"
    url = f"http://{summarizer_server.host}:{summarizer_server.port}/v1/chat/completions"
    words = ["record", "--questions", str(web), "--limit", "6", "--output_dir", str(tmp_path / "record")]
    words += ["--teacher", url, "--teacher_model", str(summarizer_server.model)]
    words += ["--prompt_template", "resum_v1", "--tokenizer", "smollm2-135m-instruct"]
    words += ["--window_tokens", "560", "--reserve_tokens", "0", "--max_calls", "20"]
    assert condensery([*words, "--max_summary_tokens", "512"]) == 0
    rollouts = read_jsonl(tmp_path / "record" / "trajectories.jsonl")
    cuts = [cut for rollout in rollouts for cut in rollout["cuts"]]
    accepted = [cut for cut in cuts if cut.get("summary")]
    answered = [rollout for rollout in rollouts if rollout["termination"] == "answer"]
    print(
        f"{len(answered)} of {len(rollouts)} rollouts answered; {len(accepted)} of {len(cuts)} summaries used"
    )
    # A summarizer this small confuses facts now and then, which sends the explorer to search for them again.
    assert len(rollouts) == 6 and len(answered) >= 3 and accepted
