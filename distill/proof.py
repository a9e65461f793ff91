"""Proof that an exported folder is the model that was trained.

A merge can drop or scramble an adapter and still load clean and answer fluently. So three models are
compared: trained (an adapter on its base, not merged), reloaded from the export alone, and base.

- Tensor by tensor, by name: each must be what training made of it, or the base's where nothing trained it.
- By log-probabilities on fixed prompts, in float32: the first two must agree, and differ from the third.
- With a server, by the log-probabilities that it answers with.
"""

from dataclasses import asdict, dataclass, field

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from condensery.thinking import Thinking
from distill.fingerprints import Prints, TrainedTensors
from modeling.chat_template import RenderedPair, render_pair
from modeling.fixed_prompts import FIXED_REASONING, fixed_chats
from modeling.logprobs import completion_logprobs

MAX_DRIFT = 1e-4  # nats per token between trained and exported in one precision
MAX_DRIFT_SHARE = 0.1  # of the change that training made, where the export rounds to a lower precision
MAX_NAMES = 5  # in a message


@dataclass(frozen=True)
class TensorProof:
    """Names of tensors by what became of them; the last three lists are empty in a good export."""

    num_tensors: int
    num_expected: int  # those that training changed, in the export's precision
    num_changed: int
    unchanged: dict[str, str]  # carry an adapter that changes nothing, and why
    still_base: list[str]  # were trained, and hold the base's values
    untrained: list[str]  # changed, though nothing trained them (or are in only one of the two)
    different: list[str]  # changed, to other values than the trained

    def __str__(self) -> str:
        text = f"{self.num_changed} tensors changed, {self.num_expected} expected"
        zero = [f"{name}: {reason}" for name, reason in self.unchanged.items()]
        return text + (f", {len(zero)} adapted ones unchanged ({_some(zero)})" if zero else "")

    def problems(self) -> list[str]:
        kinds = (
            ("trained, but the base's in the export", self.still_base),
            ("changed, though nothing trained them", self.untrained),
            ("changed to other values than the trained", self.different),
        )
        return [f"{kind}: {_some(names)}" for kind, names in kinds if names]


@dataclass(frozen=True)
class Gap:
    """How far two models lie apart, in nats per token, over all tokens of the fixed completions."""

    max: float
    mean: float

    def __str__(self) -> str:
        return f"max {self.max:.1e}, mean {self.mean:.1e} nats"


@dataclass(frozen=True)
class Proof:
    """All gaps are between log-probabilities of the fixed completions."""

    drift: Gap  # trained against exported
    change: Gap  # exported against base
    num_tokens: int
    tensors: TensorProof
    rounded: bool  # the export is in a lower precision than the trained model
    quantization: dict[str, Gap] = field(default_factory=dict)  # by name: quantized_drift
    served: Gap | None = None  # trained against the server's answers

    def __str__(self) -> str:
        lines = [
            f"trained against exported: {self.drift}; exported against base: {self.change}, over "
            f"{self.num_tokens} tokens; {self.tensors}"
        ]
        lines += [f"{name.replace('_', ' ')}: {gap}" for name, gap in self.quantization.items()]
        lines += [f"trained against served: {self.served}"] if self.served else []
        return "; ".join(lines)

    @property
    def limit(self) -> float:
        return max(MAX_DRIFT, MAX_DRIFT_SHARE * self.change.mean) if self.rounded else MAX_DRIFT

    def agrees(self, gap: Gap) -> bool:
        """Not so for NaN. A single token may move far when weights are rounded; the mean may not."""
        return (gap.mean if self.rounded else gap.max) <= self.limit

    def check(self) -> None:
        """Raises ValueError if the export is not the trained model, or is the base."""
        problems = "; ".join(self.tensors.problems())
        if self.tensors.num_changed == 0 or self.change.max <= MAX_DRIFT:
            raise ValueError(f"the export equals its base: the training is gone, or did nothing ({self})")
        if problems:
            raise ValueError(f"the export is not the trained model: {problems} ({self})")
        if not self.agrees(self.drift):
            advice = (
                "; rounding its weights loses too much of what was trained: take --dtype float32, or "
                "--keep_adapter for LoRA"
            )
            raise ValueError(
                f"the export is not the trained model: drift over {self.limit:.1e} ({self})"
                f"{advice if self.rounded else ''}"
            )
        if self.served and not self.agrees(self.served):
            raise ValueError(f"the server does not serve the trained model: over {self.limit:.1e} ({self})")

    def to_dict(self) -> dict:
        return asdict(self)


def fixed_pairs(tokenizer: PreTrainedTokenizerBase, thinking: Thinking) -> list[RenderedPair]:
    return [render_pair(tokenizer, *chat, thinking, FIXED_REASONING) for chat in fixed_chats()]


def fixed_logprobs(model: PreTrainedModel, pairs: list[RenderedPair]) -> torch.Tensor:
    """Log-probabilities of all completion tokens of the fixed pairs, one after the other: (T,)."""
    return torch.cat([completion_logprobs(model, pair) for pair in pairs])


def gap(one: torch.Tensor, other: torch.Tensor) -> Gap:
    """Between log-probabilities of the same tokens, both (T,)."""
    difference = (one - other).abs()
    return Gap(difference.max().item(), difference.mean().item())


def compare(
    trained: torch.Tensor, exported: torch.Tensor, base: torch.Tensor, tensors: TensorProof, rounded: bool
) -> Proof:
    """The proof from log-probabilities, all (T,), and what became of the tensors."""
    return Proof(gap(trained, exported), gap(exported, base), len(trained), tensors, rounded)


def compare_tensors(trained: TrainedTensors, exported: Prints, base: Prints) -> TensorProof:
    """Every tensor of the export against what it should be, by name."""
    wanted = trained.prints
    # Embeddings that were tied may be written apart: then one of the two is a copy under a name of its own.
    copies = {*wanted.values(), *base.values()}
    exported = {name: print_ for name, print_ in exported.items() if name in wanted or print_ not in copies}
    wrong = [
        name for name in sorted(wanted.keys() | exported.keys()) if wanted.get(name) != exported.get(name)
    ]
    still_base = [name for name in wrong if exported.get(name) == base.get(name)]
    untrained = [name for name in wrong if wanted.get(name) == base.get(name)]
    return TensorProof(
        num_tensors=len(wanted),
        num_expected=sum(print_ != base.get(name) for name, print_ in wanted.items()),
        num_changed=sum(print_ != base.get(name) for name, print_ in exported.items()),
        unchanged=trained.unchanged,
        still_base=still_base,
        untrained=untrained,
        different=[name for name in wrong if name not in {*still_base, *untrained}],
    )


def _some(names: list[str]) -> str:
    rest = len(names) - MAX_NAMES
    return ", ".join(names[:MAX_NAMES]) + (f" and {rest} more" if rest > 0 else "")
