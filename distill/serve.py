"""Serve an exported summarizer with vLLM, as a drop-in for the summary server of ReSum agents.

    condensery serve runs/export
    condensery serve runs/export --python .venv-vllm/bin/python --vllm_args=--enforce-eager

Prints the two variables that a ReSum agent reads, once the server answers with the log-probabilities of the
trained model, and stops it when it is stopped itself. An adapter that was kept is served on its base.
The address is this machine's own: anyone who can reach the port can use the model.
"""

import http.client
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from condensery.files.config import fail, parse_args
from condensery.files.export_card import ExportCard, read_export_card
from condensery.files.jsonl import parse_json
from distill.served_proof import check_served

PROG = "condensery serve"
MAX_WINDOW = 65536  # ReSum sends 32k of history, escaped; a longer window costs memory and brings nothing
POLL_SECONDS = 1.0
LORA_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)  # those that vLLM has room for


class ServerError(Exception):
    """The server did not come up, or died."""


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


def main(argv: list[str] | None = None) -> int:
    config = parse_args(
        ServeConfig,
        argv=argv,
        prog=PROG,
        description="Serve an exported summarizer on the protocol that ReSum agents speak.",
        example=f"{PROG} runs/export --port 8000",
    )
    for number in (signal.SIGTERM, signal.SIGHUP):  # the latter: a terminal that is closed
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup has us outlive the terminal
            signal.signal(number, lambda *_: sys.exit(0))
    try:
        with running_server(config) as server:
            check_answers(config)
            print(f"RESUM_TOOL_URL={address(config)}/v1/chat/completions")
            print(f"RESUM_TOOL_NAME={config.model}", flush=True)
            raise ServerError(f"the server stopped with status {server.wait()}")
    except (OSError, ValueError) as error:
        fail(PROG, error)
    except ServerError as error:
        fail(PROG, error, status=1)
    except KeyboardInterrupt:
        return 0


@contextmanager
def running_server(config: ServeConfig) -> Iterator[subprocess.Popen]:
    """A healthy server while the block runs. ValueError or ServerError, with the log's last lines."""
    command = vllm_command(config)
    check_vllm(config.python)
    check_port(config.host, config.port)
    with tempfile.NamedTemporaryFile("w+", prefix="condensery-serve-", suffix=".log", delete=False) as log:
        print(f"starting vLLM; log: {log.name}", file=sys.stderr)
        # A group of its own, so that its workers can be ended with it.
        server = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            wait_until_healthy(server, config, Path(log.name))
            yield server
        finally:
            stop(server)


def check_answers(config: ServeConfig) -> None:
    """Raises ServerError if the server does not answer with the trained model."""
    card = read_export_card(config.model)
    if not card.fixed_prompts:  # exported before they were kept
        return
    try:
        print(check_served(address(config), str(config.model), card), file=sys.stderr)
    except ValueError as error:
        raise ServerError(str(error)) from error


def vllm_command(config: ServeConfig) -> list[str]:
    """What `vllm serve` runs: in the CPU build the command misses its own version, the module does not."""
    card, model = read_export_card(config.model), read_model_config(config.model)
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
    from modeling.loading import base_of, resolve_model

    adapter = parse_json((folder / "adapter_config.json").read_bytes())
    rank = next((size for size in LORA_RANKS if size >= adapter["r"]), adapter["r"])
    # Experts are fused in one tensor, which vLLM must be told.
    is_fused = any("experts" in target for target in adapter.get("target_parameters") or [])
    modules = [
        json.dumps({"name": name, "path": str(folder), "is_3d_lora_weight": is_fused}) for name in names
    ]
    arguments = ["--model", resolve_model(base_of(folder)), "--served-model-name", base_of(folder)]
    arguments += ["--tokenizer", str(folder), "--enable-lora", "--max-lora-rank", str(rank)]
    if is_fused:
        arguments += ["--enable-mixed-moe-lora-format"]
    if (template := folder / "chat_template.jinja").is_file():
        arguments += ["--chat-template", str(template)]
    return [*arguments, "--lora-modules", *modules]


def read_model_config(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    config = parse_json(path.read_bytes())
    if not isinstance(config, dict) or "model_type" not in config:
        raise ValueError(f"{path} describes no model; export again")
    return config


def model_window(model: dict[str, Any]) -> int:
    window = model.get("text_config", model).get("max_position_embeddings")
    if not isinstance(window, int):
        raise ValueError("the model's config.json names no window; give --max_model_len")
    return window


def default_reasoning_parser(model: dict[str, Any], card: ExportCard) -> str | None:
    """What a Qwen3 learned to think belongs in a field of its own, not before the summary."""
    return "qwen3" if card.thinking == "keep" and str(model["model_type"]).startswith("qwen3") else None


def check_vllm(python: str) -> None:
    code = "import importlib.util, sys; sys.exit(importlib.util.find_spec('vllm') is None)"
    try:
        missing = subprocess.run([python, "-c", code], check=False).returncode != 0
    except OSError as error:
        raise ValueError(f"--python {python}: {error.strerror}") from error
    if missing:
        raise ValueError(
            f"{python} has no vLLM; it wants an environment of its own (python -m venv .venv-vllm; "
            ".venv-vllm/bin/pip install vllm), named with --python .venv-vllm/bin/python"
        )


def free_port() -> int:
    """A port of this machine on which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def check_port(host: str, port: int) -> None:
    try:
        socket.create_connection((host, port), timeout=5).close()
    except socket.gaierror as error:
        raise ValueError(f"--host {host}: {error.strerror}") from error
    except OSError:  # nobody answers there, as it should be
        return
    raise ValueError(f"something listens on {host}:{port} already; choose another --port")


def address(config: ServeConfig) -> str:
    host = f"[{config.host}]" if ":" in config.host else config.host
    return f"http://{host}:{config.port}"


def wait_until_healthy(server: subprocess.Popen, config: ServeConfig, log: Path) -> None:
    deadline = time.monotonic() + config.timeout_seconds
    while not is_healthy(address(config)):
        if server.poll() is not None:
            raise ServerError(f"vLLM ended with status {server.returncode}; {last_lines(log)}")
        if time.monotonic() > deadline:
            raise ServerError(f"no answer after {config.timeout_seconds:.0f} s; {last_lines(log)}")
        time.sleep(POLL_SECONDS)


def is_healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=5) as answer:
            return bool(answer.status == 200)
    except (OSError, http.client.HTTPException):
        return False


def last_lines(log: Path, count: int = 15) -> str:
    lines = log.read_text(errors="replace").splitlines()
    return "the log ends:\n" + "\n".join(lines[-count:])


def stop(server: subprocess.Popen, grace_seconds: float = 20.0) -> None:
    """Ask first; then end the whole group, workers too, also where a second Ctrl-C cuts the waiting short."""
    try:
        server.terminate()
        server.wait(grace_seconds)
    except subprocess.TimeoutExpired:
        pass
    finally:
        with suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)
        server.wait()


if __name__ == "__main__":
    sys.exit(main())
