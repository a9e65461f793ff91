"""`make vllm-check`: vLLM serves what was trained, and can take the place of ReSum's summary server."""

import json
import re
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from condensery.cli import main as condensery
from condensery.files.export_card import read_export_card
from condensery.files.jsonl import read_jsonl
from distill.served_proof import all_served_logprobs
from distill.vllm_command import ServeConfig, address
from tests.vllm.conftest import MIXTURES

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


def check_logprobs(server: ServeConfig, export: Path, name: str) -> None:
    """The server's answers against the trained run: for LoRA the adapter on its base, before any merge."""
    card = read_export_card(export)
    served = all_served_logprobs(address(server), str(server.model), card)
    trained = [value for prompt in card.fixed_prompts for value in prompt.trained_logprobs]
    largest = max(abs(one - other) for one, other in zip(trained, served, strict=True))
    proof = json.loads((export / "condensery.json").read_text())["proof"]
    tensors = proof["tensors"]
    print(
        f"{name:22} trained/exported {proof['drift']['max']:.1e}, trained/served {largest:.1e} nats at most; "
        f"tensors changed {tensors['num_changed']}, expected {tensors['num_expected']}"
    )
    assert max(proof["drift"]["max"], largest) <= 1e-4
    assert tensors["num_changed"] == tensors["num_expected"] > 0


@pytest.mark.parametrize("variant", MIXTURES)
def test_served_mixture_equals_the_trained(variant: str, train_mixture: Any, serve: Any) -> None:
    export = train_mixture(variant)
    with serve(export) as server:
        check_logprobs(server, export, f"mixture, {variant}")


def test_served_summarizer_equals_the_trained(summarizer: Path, summarizer_server: ServeConfig) -> None:
    check_logprobs(summarizer_server, summarizer, "SmolLM2, full")


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
