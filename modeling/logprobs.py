"""Per-token log-probabilities of completions, computed only where they are needed.

Logits over a 152k vocabulary for a 16k prompt take 10 GB; the completion's few hundred positions are all we
want.
"""

import torch
from transformers import PreTrainedModel

from modeling.chat_template import RenderedPair


@torch.inference_mode()
def completion_distributions(model: PreTrainedModel, pair: RenderedPair) -> torch.Tensor:
    """Log-probabilities of the whole vocabulary at each completion token, in float32: (T_completion, V)."""
    num_completion = len(pair.input_ids) - pair.num_prompt_tokens
    input_ids = torch.tensor([pair.input_ids], device=model.device)  # (1, T)
    output = model(input_ids, logits_to_keep=num_completion + 1, use_cache=False)
    return output.logits[0, :-1].float().log_softmax(dim=-1)  # the position before a token predicts it


def completion_logprobs(model: PreTrainedModel, pair: RenderedPair) -> torch.Tensor:
    """log p(token | everything before it) of each completion token, in float32: (T_completion,)."""
    distributions = completion_distributions(model, pair)
    targets = torch.tensor(pair.completion_ids, device=distributions.device)[:, None]  # (T_completion, 1)
    return distributions.gather(1, targets)[:, 0].cpu()


def kl_divergence(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """KL(p || q) in nats at each position: (T,), of log-probabilities (T, V)."""
    return (p.exp() * (p - q)).sum(dim=-1)
