"""Joined rows that see each other are found on the model itself."""

from pathlib import Path

import pytest
import torch
from transformers import AttentionInterface, AutoModelForCausalLM
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from trl.trainer.sft_trainer import DataCollatorForLanguageModeling

from modeling.packing import MAX_LEAK, leak_between_rows

FIRST = {"input_ids": list(range(100, 140)), "labels": list(range(100, 140))}
SECOND = {"input_ids": list(range(500, 530)), "labels": list(range(500, 530))}


def causal_over_everything(module, query, key, value, attention_mask, **kwargs):
    """A kernel that knows of no rows, as many do."""
    return sdpa_attention_forward(module, query, key, value, None, is_causal=True, **kwargs)


AttentionInterface.register("causal_over_everything", causal_over_everything)


@pytest.mark.parametrize("model", ["tiny_llama", "tiny_qwen3_moe"])
@pytest.mark.parametrize(
    ("attention", "leaks"), [("sdpa", False), ("eager", False), ("causal_over_everything", True)]
)
def test_a_leak_shows(model: str, attention: str, leaks: bool, request: pytest.FixtureRequest) -> None:
    folder: Path = request.getfixturevalue(model)
    loaded = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation=attention)
    collate = DataCollatorForLanguageModeling(pad_token_id=0, padding_free=True)
    assert (leak_between_rows(loaded, collate, FIRST, SECOND) > MAX_LEAK) == leaks
