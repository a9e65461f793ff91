"""What trains and what does not, by the parts of a transformer: told before the first step."""

import re
from collections import defaultdict

from torch import nn

# A part is named by the first pattern that a parameter's name matches.
PARTS = {
    "router": r"\b(gate|router)\.(weight|bias)$|\be_score_correction_bias$",
    "experts": r"\bexperts\b",
    "attention": r"attn|attention",
    "head": r"\blm_head\b",
    "embeddings": r"\bembed",
    "norms": r"norm",
    "feed-forward": r"mlp|feed_forward",
}


def part_of(name: str) -> str:
    """The part of a parameter, adapters with the weights they stand on."""
    plain = name.replace(".base_layer", "")
    plain = re.sub(r"\.lora_(A|B|embedding_A|embedding_B|magnitude_vector)\b.*", ".weight", plain)
    return next((part for part, pattern in PARTS.items() if re.search(pattern, plain)), "other")


def freeze_router(model: nn.Module) -> int:
    """Keep the choice of experts as it was learned; returns how many tensors that are.

    Raises ValueError where there is no router: the model is no mixture of experts.
    """
    routers = [weight for name, weight in model.named_parameters() if part_of(name) == "router"]
    if not routers:
        raise ValueError("--freeze_router: this model has no router; it is no mixture of experts")
    for weight in routers:
        weight.requires_grad_(False)
    return len(routers)


def describe_trainable(model: nn.Module) -> str:
    """`attention 1,024 of 65,536, experts 0 of ...`: trained and all parameters of each part."""
    trained: dict[str, int] = defaultdict(int)
    every: dict[str, int] = defaultdict(int)
    for name, weight in model.named_parameters():
        part = part_of(name)
        every[part] += weight.numel()
        trained[part] += weight.numel() if weight.requires_grad else 0
    width = max(map(len, every))
    lines = [f"  {part:{width}}  {trained[part]:>15,} of {count:>15,}" for part, count in every.items()]
    return "\n".join(["parameters that train:", *lines])
