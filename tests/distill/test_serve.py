"""Serving: the command, and clear ends where vLLM is missing or dies. The real one: tests/vllm."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from distill import serve
from distill.serve import check_port, running_server
from distill.vllm_command import ServeConfig, address, vllm_command


def write_card(folder: Path, thinking: str = "none", switch: bool | None = None) -> None:
    card = {"prompt_template": {"name": "compact_v1", "text": "..."}}
    card |= {"thinking": thinking, "enable_thinking": switch}
    (folder / "condensery.json").write_text(json.dumps(card))


@pytest.fixture
def export_folder(tmp_path: Path) -> Path:
    """What serving reads of an export."""
    folder = tmp_path / "export"
    folder.mkdir()
    write_card(folder)
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "max_position_embeddings": 8192}))
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    return folder


@pytest.fixture
def free_port() -> int:
    return serve.free_port()


def fake_python(tmp_path: Path, body: str) -> str:
    """A Python that claims to have vLLM and runs `body` in its place, in a real process."""
    script = tmp_path / "python"
    head = f"#!{sys.executable}\nimport sys\nif sys.argv[1] == '-c': sys.exit(0)\n"
    script.write_text(head + textwrap.dedent(body))
    script.chmod(0o755)
    return str(script)


SERVER = """
from http.server import BaseHTTPRequestHandler, HTTPServer
class Healthy(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
    def log_message(self, *args): pass
HTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Healthy).serve_forever()
"""


def test_command_serves_every_name_an_agent_may_use(export_folder: Path) -> None:
    command = vllm_command(ServeConfig(export_folder, vllm_args="--enforce-eager --max-num-seqs 4"))
    names = command[command.index("--served-model-name") + 1 : command.index("--max-model-len")]
    assert str(export_folder) in names
    assert command[command.index("--host") + 1] == "127.0.0.1"
    assert command[command.index("--max-model-len") + 1] == "8192"
    assert command[-3:] == ["--enforce-eager", "--max-num-seqs", "4"]
    assert "--reasoning-parser" not in command and "--default-chat-template-kwargs" not in command


def test_a_kept_adapter_is_served_on_the_revision_of_its_base(export_folder: Path) -> None:
    adapter = {"base_model_name_or_path": "org/base", "revision": "v2", "r": 16}
    (export_folder / "adapter_config.json").write_text(json.dumps(adapter))
    command = vllm_command(ServeConfig(export_folder))
    assert command[command.index("--model") + 1] == "org/base"
    assert command[command.index("--revision") + 1] == "v2"


@pytest.mark.parametrize(("thinking", "switch"), [("keep", None), ("empty", False), ("none", None)])
def test_only_a_model_that_learned_to_think_gets_a_parser(
    export_folder: Path, thinking: str, switch: bool | None
) -> None:
    write_card(export_folder, thinking, switch)
    config = {"model_type": "qwen3_moe", "max_position_embeddings": 262144}
    (export_folder / "config.json").write_text(json.dumps(config))
    command = vllm_command(ServeConfig(export_folder))
    assert ("--reasoning-parser" in command) is (thinking == "keep")
    assert ("--default-chat-template-kwargs" in command) is (switch is not None)
    assert command[command.index("--max-model-len") + 1] == "65536"


def test_server_lives_as_long_as_the_block(export_folder: Path, tmp_path: Path, free_port: int) -> None:
    python = fake_python(tmp_path, SERVER)
    config = ServeConfig(export_folder, port=free_port, python=python, timeout_seconds=30)
    with running_server(config) as server:
        with urllib.request.urlopen(f"http://127.0.0.1:{free_port}/health", timeout=5) as answer:
            assert answer.status == 200
        with pytest.raises(ValueError, match="listens on"), running_server(config):
            pass
        assert server.poll() is None
    assert server.poll() is not None


def test_death_at_start_shows_the_end_of_the_log(
    export_folder: Path, tmp_path: Path, free_port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    python = fake_python(tmp_path, "print('out of memory'); sys.exit(3)")
    with pytest.raises(SystemExit) as stopped:
        serve.main([str(export_folder), "--python", python, "--port", str(free_port)])
    message = capsys.readouterr().err
    assert stopped.value.code == 1 and "ended with status 3" in message and "out of memory" in message


ANSWERING = """
import json
from http.server import BaseHTTPRequestHandler, HTTPServer
class Answering(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        entries = [None, *({str(token): {"logprob": LOGPROB}} for token in body["prompt"][1:])]
        self.send_response(200); self.end_headers()
        self.wfile.write(json.dumps({"choices": [{"prompt_logprobs": entries}]}).encode())
    def log_message(self, *args): pass
HTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Answering).serve_forever()
"""


@pytest.mark.parametrize(("logprob", "is_trained"), [(-1.2, True), (-2.8, False)])
def test_a_server_is_up_once_it_answers_with_the_trained_model(
    export_folder: Path, tmp_path: Path, free_port: int, logprob: float, is_trained: bool
) -> None:
    """The trained model gives every token -1, its base -3; one that answers nearer to the base is not it."""
    prompt = {"input_ids": [5, 6, 7, 8], "num_prompt_tokens": 2}
    prompt |= {"trained_logprobs": [-1.0, -1.0], "base_logprobs": [-3.0, -3.0]}
    card = json.loads((export_folder / "condensery.json").read_text())
    (export_folder / "condensery.json").write_text(json.dumps(card | {"fixed_prompts": [prompt]}))
    python = fake_python(tmp_path, ANSWERING.replace("LOGPROB", str(logprob)))
    config = ServeConfig(export_folder, port=free_port, python=python, timeout_seconds=30)
    with running_server(config):
        if is_trained:
            serve.check_answers(config)
        else:
            with pytest.raises(serve.ServerError, match="does not serve the trained model"):
                serve.check_answers(config)


WORKER = """
import subprocess
worker = subprocess.Popen(["sleep", "300"])
print("worker", worker.pid, flush=True)
"""


def is_alive(pid: int) -> bool:
    """Whether the process runs; a zombie that nobody has reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until(condition: Callable[[], object]) -> None:
    for _ in range(400):
        if condition():
            return
        time.sleep(0.05)
    pytest.fail("it did not come to pass in 20 s")


def default_signals() -> None:
    """As from a terminal: a test run in the background, or under nohup, hands its ignored signals down."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, "the server is killed"])
def test_nothing_is_left_running_however_it_ends(
    export_folder: Path, tmp_path: Path, free_port: int, end: signal.Signals | str
) -> None:
    python = fake_python(tmp_path, WORKER + SERVER)
    words = [str(export_folder), "--python", python, "--port", str(free_port)]
    command = [sys.executable, "-m", "distill.serve", *words]
    served = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=default_signals
    )
    assert (
        served.stdout and served.stderr and served.stdout.readline().startswith("RESUM_TOOL_URL=http://127")
    )
    log = Path(served.stderr.readline().split("log: ")[1].strip())
    worker = int(log.read_text().split("worker ")[1].split()[0])
    server = int(Path(f"/proc/{worker}/stat").read_text().rpartition(")")[2].split()[1])
    assert is_alive(worker) and is_alive(server)
    if isinstance(end, str):
        os.kill(server, signal.SIGKILL)
    else:
        served.send_signal(end)
    assert served.wait(20) == (1 if isinstance(end, str) else 0)
    served.communicate()
    wait_until(lambda: not is_alive(worker) and not is_alive(server))
    log.unlink()


def test_under_nohup_a_closed_terminal_ends_nothing(
    export_folder: Path, tmp_path: Path, free_port: int
) -> None:
    words = [str(export_folder), "--python", fake_python(tmp_path, SERVER), "--port", str(free_port)]
    command = ["nohup", sys.executable, "-m", "distill.serve", *words]
    served = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert served.stdout and served.stdout.readline().startswith("RESUM_TOOL_URL=http://127")
    served.send_signal(signal.SIGHUP)
    with pytest.raises(subprocess.TimeoutExpired):
        served.wait(1)
    served.send_signal(signal.SIGTERM)
    assert served.wait(20) == 0
    served.communicate()


@pytest.mark.parametrize(
    ("file", "content", "complaint"),
    [
        ("condensery.json", "{", "condensery.json is damaged"),
        ("condensery.json", "[]", "condensery.json is damaged"),
        ("condensery.json", "{}", "condensery.json is damaged"),
        ("config.json", "{}", "config.json names no model_type"),
        ("config.json", '{"model_type": "llama"}', "give --max_model_len"),
        ("config.json", "", "config.json: not JSON"),
        ("adapter_config.json", "{", "adapter_config.json: not JSON"),
        ("adapter_config.json", '{"base_model_name_or_path": "org/base"}', "adapter_config.json names no r"),
    ],
)
def test_a_damaged_export_is_one_line(
    export_folder: Path, capsys: pytest.CaptureFixture[str], file: str, content: str, complaint: str
) -> None:
    (export_folder / file).write_text(content)
    with pytest.raises(SystemExit) as stopped:
        serve.main([str(export_folder)])
    message = capsys.readouterr().err
    assert stopped.value.code == 2 and complaint in message and message.count("\n") == 1


def test_an_address_may_be_of_any_kind(export_folder: Path) -> None:
    assert address(ServeConfig(export_folder, host="::1", port=80)) == "http://[::1]:80"
    with pytest.raises(ValueError, match=r"--host no\.such\.host\.invalid"):
        check_port("no.such.host.invalid", 8000)
    check_port("::1", 1)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--python", "/no/python"], "/no/python"),
        (["--python", sys.executable], "has no vLLM"),
    ],
)
def test_missing_vllm_is_one_line(
    export_folder: Path, capsys: pytest.CaptureFixture[str], words: list[str], complaint: str
) -> None:
    with pytest.raises(SystemExit) as stopped:
        serve.main([str(export_folder), *words])
    message = capsys.readouterr().err
    assert stopped.value.code == 2 and complaint in message and message.count("\n") == 1


def test_folder_that_is_no_export(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        serve.main([str(tmp_path)])
    assert "condensery.json" in capsys.readouterr().err
