"""Proof that an exported folder is the model that was trained.

A merge can drop or scramble an adapter and still load clean and answer fluently. So three models are
compared on fixed prompts, in float32: trained, reloaded from the export alone, and base. The first two must
agree, and differ from the third; and the tensors that changed are counted against those that training could
change.
"""

from dataclasses import asdict, dataclass

import torch
from peft.tuners.lora.layer import LoraLayer
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from condensery.thinking import Thinking
from modeling.chat_template import RenderedPair, render_pair
from modeling.fixed_prompts import FIXED_REASONING, fixed_chats
from modeling.logprobs import completion_logprobs

MAX_DRIFT = 1e-4  # nats per token between trained and exported in one precision
MAX_DRIFT_SHARE = 0.1  # of the change that training made, where the export rounds to a lower precision


@dataclass(frozen=True)
class Proof:
    """Differences of log-probabilities in nats per token, over all tokens of the fixed completions."""

    max_drift: float
    mean_drift: float
    max_change: float
    mean_change: float
    num_tokens: int
    num_changed_tensors: int
    num_expected_tensors: int
    rounded: bool

    def __str__(self) -> str:
        return (
            f"trained against exported: max {self.max_drift:.1e}, mean {self.mean_drift:.1e}; exported "
            f"against base: max {self.max_change:.2f}, mean {self.mean_change:.3f} nats over "
            f"{self.num_tokens} tokens; {self.num_changed_tensors} of {self.num_expected_tensors} trained "
            "tensors changed"
        )

    def check(self) -> None:
        """Raises ValueError if the export is not the trained model, or is the base."""
        if self.num_changed_tensors == 0 or self.max_change <= MAX_DRIFT:
            raise ValueError(f"the export equals its base: the training is gone, or did nothing ({self})")
        if not self.num_expected_tensors / 2 <= self.num_changed_tensors <= self.num_expected_tensors:
            raise ValueError(f"part of the training is gone, or more than it changed ({self})")
        limit = max(MAX_DRIFT, MAX_DRIFT_SHARE * self.mean_change) if self.rounded else MAX_DRIFT
        drift = self.mean_drift if self.rounded else self.max_drift
        if not drift <= limit:
            raise ValueError(f"the export is not the trained model: drift over {limit:.1e} ({self})")

    def to_dict(self) -> dict:
        return asdict(self)


def fixed_pairs(tokenizer: PreTrainedTokenizerBase, thinking: Thinking) -> list[RenderedPair]:
    return [render_pair(tokenizer, *chat, thinking, FIXED_REASONING) for chat in fixed_chats()]


def fixed_logprobs(model: PreTrainedModel, pairs: list[RenderedPair]) -> torch.Tensor:
    """Log-probabilities of all completion tokens of the fixed pairs, one after the other: (T,)."""
    return torch.cat([completion_logprobs(model, pair) for pair in pairs])


def compare(
    trained: torch.Tensor, exported: torch.Tensor, base: torch.Tensor, tensors: tuple[int, int], rounded: bool
) -> Proof:
    """The proof from log-probabilities, all (T,), and (changed, trained) tensors."""
    drift, change = (trained - exported).abs(), (exported - base).abs()
    return Proof(
        max_drift=drift.max().item(),
        mean_drift=drift.mean().item(),
        max_change=change.max().item(),
        mean_change=change.mean().item(),
        num_tokens=len(drift),
        num_changed_tensors=tensors[0],
        num_expected_tensors=tensors[1],
        rounded=rounded,
    )


def num_trained_tensors(model: nn.Module) -> int:
    """How many tensors of the merged model training could change: all, or those that carry an adapter."""
    adapted = sum(isinstance(module, LoraLayer) for module in model.modules())
    return adapted or sum(1 for _ in model.parameters())


def changed_tensors(exported: PreTrainedModel, base: PreTrainedModel, dtype: torch.dtype) -> list[str]:
    """Names of the parameters that differ between the two, both brought to the export's precision."""
    before = dict(base.named_parameters())
    return [
        name
        for name, weight in exported.named_parameters()
        if name not in before or not torch.equal(weight.to(dtype), before[name].to(weight.device, dtype))
    ]
