"""Parts of a model by name, and a router that stays as it is."""

from pathlib import Path

import pytest
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

from modeling.trainable import describe_trainable, freeze_router, part_of


def test_adapters_are_counted_with_what_they_stand_on(tiny_qwen3_moe: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(tiny_qwen3_moe)
    assert {part_of(name) for name, _ in model.named_parameters()} == {
        *("router", "experts", "attention", "head", "embeddings", "norms")
    }
    experts = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]
    get_peft_model(model, LoraConfig(r=2, target_modules=["q_proj"], target_parameters=experts))
    trained = {part_of(name) for name, weight in model.named_parameters() if weight.requires_grad}
    assert trained == {"attention", "experts"}
    assert "router                    0 of" in describe_trainable(model)


def test_a_frozen_router_is_the_only_part_that_stays(tiny_qwen3_moe: Path, tiny_llama: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(tiny_qwen3_moe)
    assert freeze_router(model) == 2
    frozen = [name for name, weight in model.named_parameters() if not weight.requires_grad]
    assert frozen == ["model.layers.0.mlp.gate.weight", "model.layers.1.mlp.gate.weight"]
    with pytest.raises(ValueError, match="no mixture of experts"):
        freeze_router(AutoModelForCausalLM.from_pretrained(tiny_llama))
