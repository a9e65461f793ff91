"""What `vllm serve` is told, so that an exported summarizer is served as it was trained: its names, window,
chat template and thinking, or the adapter on its base."""

import json
import shlex
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from condensery.files.export_card import ExportCard, read_export_card
from condensery.files.jsonl import read_json

MAX_WINDOW = 65536  # ReSum sends 32k of history, escaped; a longer window costs memory and brings nothing
LORA_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)  # those that vLLM has room for


@dataclass
class ServeConfig:
    """Which folder to serve, and where."""

    model: Path = field(metadata={"positional": True, "help": "a folder from `condensery export`"})
    host: str = field(default="127.0.0.1", metadata={"help": "address to listen on"})
    port: int = field(default=8000, metadata={"help": "port to listen on"})
    python: str = field(default=sys.executable, metadata={"help": "Python whose environment holds vLLM"})
    max_model_len: int | None = field(
        default=None,
        metadata={"help": f"window in tokens; default: the model's, at most {MAX_WINDOW}", "minimum": 1},
    )
    dtype: str = field(default="auto", metadata={"help": "precision that vLLM computes in"})
    reasoning_parser: str | None = field(
        default=None, metadata={"help": "vLLM's parser of thinking; default: by model, none for others"}
    )
    vllm_args: str = field(default="", metadata={"help": "more arguments of vLLM, in one quoted string"})
    timeout_seconds: float = field(
        default=900.0, metadata={"help": "how long loading may take", "minimum": 1}
    )

    def __post_init__(self) -> None:
        if not 0 < self.port < 65536:
            raise ValueError(f"port is {self.port}; it must be from 1 to 65535")


def address(config: ServeConfig) -> str:
    host = f"[{config.host}]" if ":" in config.host else config.host
    return f"http://{host}:{config.port}"


def vllm_command(config: ServeConfig) -> list[str]:
    """What `vllm serve` runs: in the CPU build the command misses its own version, the module does not."""
    card, model = read_export_card(config.model), read_config(config.model / "config.json", "model_type")
    # Agents name the model by whatever path they were given.
    names = dict.fromkeys([str(config.model), str(config.model.resolve()), config.model.name])
    window = config.max_model_len or min(model_window(model), MAX_WINDOW)
    command = [config.python, "-m", "vllm.entrypoints.openai.api_server"]
    if (config.model / "adapter_config.json").is_file():
        command += adapter_arguments(config.model, list(names))
    else:
        command += ["--model", str(config.model), "--served-model-name", *names]
    command += ["--host", config.host, "--port", str(config.port)]
    command += ["--max-model-len", str(window), "--dtype", config.dtype]
    if card.enable_thinking is not None:
        switch = json.dumps({"enable_thinking": card.enable_thinking})
        command += ["--default-chat-template-kwargs", switch]
    parser = config.reasoning_parser or default_reasoning_parser(model, card)
    if parser:
        command += ["--reasoning-parser", parser]
    return command + shlex.split(config.vllm_args)


def adapter_arguments(folder: Path, names: list[str]) -> list[str]:
    """The base under its own name, the adapter on it under each of `names`; the tokenizer is the export's."""
    from modeling.loading import base_of, base_revision, resolve_model

    adapter = read_config(folder / "adapter_config.json", "r")
    rank = next((size for size in LORA_RANKS if size >= adapter["r"]), adapter["r"])
    # Experts are fused in one tensor, which vLLM must be told.
    is_fused = any("experts" in target for target in adapter.get("target_parameters") or [])
    modules = [
        json.dumps({"name": name, "path": str(folder), "is_3d_lora_weight": is_fused}) for name in names
    ]
    arguments = ["--model", resolve_model(base_of(folder)), "--served-model-name", base_of(folder)]
    if revision := base_revision(folder):
        arguments += ["--revision", revision]
    arguments += ["--tokenizer", str(folder), "--enable-lora", "--max-lora-rank", str(rank)]
    if is_fused:
        arguments += ["--enable-mixed-moe-lora-format"]
    if (template := folder / "chat_template.jinja").is_file():
        arguments += ["--chat-template", str(template)]
    return [*arguments, "--lora-modules", *modules]


def read_config(path: Path, key: str) -> dict[str, Any]:
    """A config that describes something: one that has `key`."""
    config = read_json(path)
    if not isinstance(config, dict) or not config.get(key):
        raise ValueError(f"{path} names no {key}; export again")
    return config


def model_window(model: dict[str, Any]) -> int:
    window = model.get("text_config", model).get("max_position_embeddings")
    if not isinstance(window, int):
        raise ValueError("the model's config.json names no window; give --max_model_len")
    return window


def default_reasoning_parser(model: dict[str, Any], card: ExportCard) -> str | None:
    """What a Qwen3 learned to think belongs in a field of its own, not before the summary."""
    return "qwen3" if card.thinking == "keep" and str(model["model_type"]).startswith("qwen3") else None
