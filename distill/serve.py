"""Serve an exported summarizer with vLLM, as a drop-in for the summary server of ReSum agents.

    condensery serve runs/export
    condensery serve runs/export --python .venv-vllm/bin/python --vllm_args=--enforce-eager

Prints the two variables that a ReSum agent reads, once the server answers with the log-probabilities of the
trained model, and stops it when it is stopped itself. An adapter that was kept is served on its base.
The address is this machine's own: anyone who can reach the port can use the model.
"""

import http.client
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from condensery.files.config import fail, parse_args
from condensery.files.export_card import read_export_card
from distill.served_proof import check_served
from distill.vllm_command import ServeConfig, address, vllm_command

PROG = "condensery serve"
POLL_SECONDS = 1.0


class ServerError(Exception):
    """The server did not come up, or died."""


def main(argv: list[str] | None = None) -> int:
    config = parse_args(
        ServeConfig,
        argv=argv,
        prog=PROG,
        description="Serve an exported summarizer on the protocol that ReSum agents speak.",
        example=f"{PROG} runs/export --port 8000",
    )
    end_on_signals(status=0)
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


def end_on_signals(status: int) -> None:
    """Have signals end the command as an error would: nothing that it started or half wrote is left."""
    for number in (signal.SIGTERM, signal.SIGHUP):  # the latter: a terminal that is closed
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup has us outlive the terminal
            signal.signal(number, lambda *_: sys.exit(status))


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


def check_vllm(python: str, option: str = "--python") -> None:
    code = "import importlib.util, sys; sys.exit(importlib.util.find_spec('vllm') is None)"
    try:
        missing = subprocess.run([python, "-c", code], check=False).returncode != 0
    except OSError as error:
        raise ValueError(f"{option} {python}: {error.strerror}") from error
    if missing:
        raise ValueError(
            f"{python} has no vLLM; it wants an environment of its own (python -m venv .venv-vllm; "
            f".venv-vllm/bin/pip install vllm), named with {option} .venv-vllm/bin/python"
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
