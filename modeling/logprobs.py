"""Per-token log-probabilities of completions, computed only where they are needed.

Logits over a 152k vocabulary for a 16k prompt take 10 GB; the completion's few hundred positions are all we
want.
"""

import torch
from transformers import PreTrainedModel

from modeling.chat_template import RenderedPair


@torch.inference_mode()
def completion_logprobs(model: PreTrainedModel, pair: RenderedPair) -> torch.Tensor:
    """log p(token | everything before it) of each completion token, in float32: (T_completion,)."""
    num_completion = len(pair.input_ids) - pair.num_prompt_tokens
    input_ids = torch.tensor([pair.input_ids], device=model.device)  # (1, T)
    output = model(input_ids, logits_to_keep=num_completion + 1, use_cache=False)
    logits = output.logits[0, :-1].float()  # (T_completion, V): the position before a token predicts it
    targets = input_ids[0, pair.num_prompt_tokens :, None]  # (T_completion, 1)
    return logits.log_softmax(dim=-1).gather(1, targets)[:, 0].cpu()
