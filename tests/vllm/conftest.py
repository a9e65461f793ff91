"""Real exports behind real vLLM: one of SmolLM2 on the ReSum wire's prompt template, one of a tiny mixture.

The first trains for some minutes on two cores; CONDENSERY_VLLM_RUN names a folder that keeps it for the
next time.
"""

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from condensery.cli import main as condensery
from distill.serve import running_server
from distill.vllm_command import ServeConfig

BASE = "smollm2-135m-instruct"
TEMPLATE = "resum_v1"
ROOT = Path(__file__).parents[2]
ATTENTION = (
    "--use_peft",
    "--lora_target_modules",
    "q_proj",
    "k_proj",
    "v_proj",
    "o_proj",
    "--lora_dropout",
    "0",
)
EXPERTS = ("--lora_target_parameters", "mlp.experts.gate_up_proj", "mlp.experts.down_proj")
MIXTURES = {"full": (), "LoRA on attention": ATTENTION, "and on experts": (*ATTENTION, *EXPERTS)}


@pytest.fixture(scope="session")
def vllm_python() -> str:
    python = os.environ.get("CONDENSERY_VLLM_PYTHON")
    if python is None:
        pytest.skip("CONDENSERY_VLLM_PYTHON is not set; `make vllm-check` sets it")
    return python


@pytest.fixture(scope="session")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    kept = os.environ.get("CONDENSERY_VLLM_RUN")
    return Path(kept) if kept else tmp_path_factory.mktemp("vllm")


def step(output_dir: Path, *words: str) -> Path:
    """One step of the path, unless its output is there."""
    if not (output_dir / "run.json").is_file() and not (output_dir / "condensery.json").is_file():
        assert condensery([*words, "--output_dir", str(output_dir)]) == 0
    return output_dir


def record_pairs(work: Path, name: str, *web_options: str) -> Path:
    """Pairs of scripted rollouts over a web of their own, on the wire's template."""
    web = step(work / f"web_{name}", "web", *web_options)
    counting = ("--tokenizer", BASE, "--prompt_template", TEMPLATE)
    window = ("--window_tokens", "560", "--reserve_tokens", "0")
    record = step(work / f"record_{name}", "record", "--questions", str(web), *counting, *window)
    return step(work / f"pairs_{name}", "pairs", str(record), *counting, "--held_out", "0")


@pytest.fixture(scope="session")
def held_out_pairs(work: Path) -> Path:
    """More than 20 histories from a web that shares no page with the training one."""
    options = ("--num_questions", "36", "--seed", "2", "--part", "held_out")
    return record_pairs(work, "held_out", *options) / "train.jsonl"


@pytest.fixture(scope="session")
def summarizer(work: Path) -> Path:
    """The export of a SmolLM2 trained for the wire."""
    pairs = record_pairs(work, "train", "--num_questions", "140", "--seed", "1") / "train.jsonl"
    config = str(ROOT / "configs" / "sft" / "smollm2_cpu.yaml")
    run = work / "sft"
    words = ["sft", "--config", config, "--train_file", str(pairs), "--output_dir", str(run), "--resume"]
    assert condensery([*words, "--max_steps", "40", "--learning_rate", "1e-4"]) == 0
    return step(work / "export", "export", "--checkpoint", str(run))


@pytest.fixture(scope="session")
def mixture_base(tmp_path_factory: pytest.TempPathFactory, smollm2_tokenizer) -> Path:
    """Qwen3-MoE of 4 layers and 8 experts, random."""
    from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM, set_seed

    set_seed(0)
    folder = tmp_path_factory.mktemp("mixture")
    config = Qwen3MoeConfig(
        vocab_size=len(smollm2_tokenizer),
        hidden_size=128,
        intermediate_size=256,
        moe_intermediate_size=64,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        num_experts=8,
        num_experts_per_tok=2,
        max_position_embeddings=4096,
        eos_token_id=smollm2_tokenizer.eos_token_id,
    )
    Qwen3MoeForCausalLM(config).save_pretrained(folder)
    smollm2_tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def train_mixture(tmp_path: Path, pairs_file: Path, mixture_base: Path) -> Callable[[str], Path]:
    """Trains a variant of MIXTURES and returns its export."""

    def train(variant: str) -> Path:
        step(
            tmp_path / "run",
            *("sft", "--config", str(ROOT / "configs" / "sft" / "qwen3_30b_a3b.yaml"), "--dtype", "float32"),
            *("--model_name_or_path", str(mixture_base), "--train_file", str(pairs_file), "--use_cpu"),
            *("--bf16", "false", "--global_batch_size", "4", "--max_steps", "6", "--learning_rate", "1e-2"),
            *("--warmup_steps", "0", "--gradient_checkpointing", "false", "--thinking", "none"),
            *MIXTURES[variant],
        )
        return step(tmp_path / "export", "export", "--checkpoint", str(tmp_path / "run"))

    return train


@contextmanager
def served(export: Path, python: str) -> Iterator[ServeConfig]:
    """`condensery serve` in float32 on a free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "2")
    config = ServeConfig(export, port=port, python=python, dtype="float32", vllm_args="--enforce-eager")
    with running_server(config):
        yield config


@pytest.fixture(scope="session")
def serve(vllm_python: str) -> Callable[[Path], AbstractContextManager[ServeConfig]]:
    return lambda export: served(export, vllm_python)


@pytest.fixture(scope="module")
def summarizer_server(summarizer: Path, vllm_python: str) -> Iterator[ServeConfig]:
    with served(summarizer, vllm_python) as config:
        yield config
