"""The plan counts what is there: weights, what trains, and what a forward pass keeps."""

import pytest
import torch
from peft import LoraConfig
from transformers import AutoConfig, AutoModelForCausalLM

from modeling.memory_plan import plan_memory

LORA = LoraConfig(target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")


@pytest.mark.parametrize("model", ["tiny_llama", "tiny_qwen3_moe"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_weights_gradients_and_states_are_those_of_the_model(
    request: pytest.FixtureRequest, model: str, dtype: torch.dtype
) -> None:
    folder = request.getfixturevalue(model)
    real = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
    size = sum(weight.nbytes for weight in real.parameters())
    plan = plan_memory(AutoConfig.from_pretrained(folder), dtype, (2, 64))
    assert (plan.weights, plan.gradients, plan.optimizer) == (size, size, 2 * size)
    assert plan.num_parameters == plan.num_trainable == real.num_parameters()
    sharded = plan_memory(AutoConfig.from_pretrained(folder), dtype, (2, 64), num_shards=4)
    trunk = sum(weight.nbytes for weight in real.base_model.parameters())
    assert sharded.weights == size / 4 + trunk  # two layers of two are whole at a time
    assert sharded.optimizer == size / 2 and sharded.activations == plan.activations
    mixed = plan_memory(AutoConfig.from_pretrained(folder), dtype, (2, 64), num_shards=4, autocast=True)
    assert mixed.optimizer == 2 * 4 * real.num_parameters() / 4, "FSDP2 trains float32 weights"


@pytest.mark.parametrize("num_rows", [1, 3])
def test_what_is_kept_is_what_a_real_pass_keeps(tiny_llama, num_rows: int) -> None:
    model = AutoModelForCausalLM.from_pretrained(tiny_llama, dtype=torch.float32).train()
    weights = {weight.untyped_storage().data_ptr() for weight in model.parameters()}
    kept: dict[int, torch.UntypedStorage] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        padded = torch.ones(num_rows, 64, dtype=torch.long)
        padded[1:, 50:] = 0
        output = model.base_model(input_ids=0 * padded, attention_mask=padded, use_cache=False)
    measured = sum(storage.nbytes() for storage in kept.values())
    assert output.last_hidden_state.requires_grad
    plan = plan_memory(AutoConfig.from_pretrained(tiny_llama), torch.float32, (num_rows, 64))
    num_layers = model.config.num_hidden_layers
    assert plan.activations == pytest.approx(measured * (1 + 2 / num_layers), rel=0.02)


def test_each_setting_moves_the_plan_its_way(tiny_llama) -> None:
    config = AutoConfig.from_pretrained(tiny_llama)
    plain = plan_memory(config, torch.float32, (4, 256))
    longer = plan_memory(config, torch.float32, (4, 512))
    assert 1.9 < longer.activations / plain.activations < 4  # the mask grows with the square
    one, twice = (plan_memory(config, torch.float32, (1, length)).activations for length in (512, 1024))
    assert 1.95 < twice / one < 2.05
    assert plan_memory(config, torch.float32, (4, 256), gradient_checkpointing=True).total < plain.total
    assert plan_memory(config, torch.float32, (4, 256), optim="adafactor").optimizer == 0
    lora = plan_memory(config, torch.float32, (4, 256), peft_config=LORA)
    assert lora.num_trainable < lora.num_parameters / 50 and lora.head == 0
    assert lora.activations < plain.activations and "parameters train" in str(lora)


def test_the_parts_make_the_total(tiny_llama) -> None:
    config = AutoConfig.from_pretrained(tiny_llama)
    plan = plan_memory(config, torch.float32, (1, 16), num_replicas=2, frozen=2.0**20, runtime=2.0**29)
    assert plan.total == sum(plan.parts.values()) and plan.buckets == plan.gradients == plan.parts["buckets"]
    assert ("gradients" in plan.parts) != ("activations" in plan.parts), "they are not there together"
    held = plan.runtime + plan.frozen + plan.weights + plan.optimizer + plan.buckets + plan.head
    assert plan.total == pytest.approx(1.1 * (held + max(plan.activations, plan.gradients)))
