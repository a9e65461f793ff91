"""Whether a server answers with the trained model: its log-probabilities against those in condensery.json.

The export keeps the trained model's log-probabilities on a few fixed prompts, so that any server can be held
against them, without the training run and without PyTorch.
"""

import http.client
import json
import math
import urllib.error
import urllib.request
from typing import Any

from condensery.files.export_card import ExportCard, FixedPrompt

TIMEOUT_SECONDS = 600.0  # the first request may compile
# Of the distance to the base. Servers compute in bfloat16, so the exact limit is for `condensery export`;
# past half of the way it is rather the base that answers.
MAX_DRIFT_SHARE = 0.5


def served_logprobs(url: str, model: str, prompt: FixedPrompt) -> list[float]:
    """What vLLM at `url` gives each token after the prompt's. ValueError where it cannot say."""
    body = {"model": model, "prompt": prompt.input_ids, "max_tokens": 1, "prompt_logprobs": 0}
    request = urllib.request.Request(
        f"{url}/v1/completions",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as response:
            [choice] = json.load(response)["choices"]
        entries = choice["prompt_logprobs"][prompt.num_prompt_tokens :]
        tokens = prompt.input_ids[prompt.num_prompt_tokens :]
        return [entry[str(token)]["logprob"] for entry, token in zip(entries, tokens, strict=True)]
    except urllib.error.HTTPError as error:
        raise ValueError(f"{url} refuses {model}: {error.read(1000).decode(errors='replace')}") from error
    except (OSError, ValueError, LookupError, TypeError, http.client.HTTPException) as error:
        raise ValueError(f"{url} gives no log-probabilities of a prompt for {model}: {error!r}") from error


def all_served_logprobs(url: str, model: str, card: ExportCard) -> list[float]:
    """Over all fixed prompts, one after the other."""
    return [value for prompt in card.fixed_prompts for value in served_logprobs(url, model, prompt)]


def check_served(url: str, model: str, card: ExportCard) -> str:
    """A line with the gap between trained and served. ValueError if the server answers with another model."""
    served = all_served_logprobs(url, model, card)
    trained = [value for prompt in card.fixed_prompts for value in prompt.trained_logprobs]
    base = [value for prompt in card.fixed_prompts for value in prompt.base_logprobs]
    drift, change = _mean_gap(trained, served), _mean_gap(trained, base)
    largest = max(abs(one - other) for one, other in zip(trained, served))
    line = (
        f"trained against served: max {largest:.1e}, mean {drift:.1e}; trained against base: mean "
        f"{change:.1e} nats"
    )
    if not drift <= MAX_DRIFT_SHARE * change:
        raise ValueError(f"the server at {url} does not serve the trained model as {model}; {line}")
    return line


def _mean_gap(one: list[float], other: list[float]) -> float:
    return math.fsum(abs(a - b) for a, b in zip(one, other)) / len(one)


def prompts_of(pairs: list[Any], trained: list[float], base: list[float]) -> list[FixedPrompt]:
    """`pairs` are rendered ones; both lists run over all their completion tokens."""
    prompts, start = [], 0
    for pair in pairs:
        end = start + len(pair.completion_ids)
        prompts.append(
            FixedPrompt(
                input_ids=pair.input_ids,
                num_prompt_tokens=pair.num_prompt_tokens,
                trained_logprobs=trained[start:end],
                base_logprobs=base[start:end],
            )
        )
        start = end
    return prompts
