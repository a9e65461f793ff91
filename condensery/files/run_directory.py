"""Output directories that explain themselves: config, command, versions, commit, seed, fingerprints."""

import fcntl
import hashlib
import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

# What may differ between a run and its continuation; whether files are the same, their content tells.
MAY_CHANGE = {"resume", "concurrency", "on_error", "dry_run", "limit", "output_dir", "paths"}
PACKAGES = ("condensery", "torch", "transformers", "trl", "peft", "accelerate", "datasets", "vllm", "openai")


def open_run_directory(path: Path | str, resume: bool = False) -> Path:
    """Create `path` for a new run, or accept it for a resumed one.

    Raises FileExistsError when it already holds a run and `resume` is off, so that no run overwrites another.
    """
    directory = Path(path)
    if (directory / "run.json").exists() and not resume:
        raise FileExistsError(
            f"{directory} already holds a run; "
            "continue it with --resume, choose another --output_dir, or remove it"
        )
    if (directory / "trajectories.jsonl").exists() and not (directory / "run.json").exists():
        raise FileExistsError(f"{directory} holds trajectories of no run here; choose another --output_dir")
    directory.mkdir(parents=True, exist_ok=True)
    return directory


@contextmanager
def only_writer(directory: Path) -> Iterator[None]:
    """Raises BlockingIOError while another process of this machine is in such a block; a kill ends it."""
    descriptor = os.open(directory, os.O_RDONLY)  # of the folder itself: no file is left behind
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BlockingIOError(
                f"{directory} is being written by another process; wait for its end, or choose another "
                "--output_dir"
            ) from error
        yield
    finally:
        os.close(descriptor)


def check_same_run(
    directory: Path, config: dict, inputs: Iterable[Path | str], may_change: Iterable[str] = ()
) -> None:
    """Raises ValueError naming every setting or input that differs from those of the run in `directory`.

    `may_change` names more settings that shape nothing of what is there already.
    """
    path = directory / "run.json"
    if not path.exists():
        return
    before = read_run(path)
    free = MAY_CHANGE.union(may_change)
    now = {name: str(value) for name, value in config.items() if name not in free}
    then = {name: str(value) for name, value in before["config"].items() if name not in free}
    changed = sorted(name for name in now.keys() | then.keys() if now.get(name) != then.get(name))
    prints = {str(input): fingerprint(input) for input in inputs}
    if sorted(prints.values()) != sorted(before["inputs"].values()):
        changed += sorted(name for name, _ in prints.items() ^ before["inputs"].items())
    if changed:
        raise ValueError(
            f"{directory} holds a run that differs in {', '.join(dict.fromkeys(changed))}; "
            "choose another --output_dir"
        )


def read_run(path: Path) -> dict:
    """A `run.json`. Raises ValueError when it is damaged."""
    try:
        run = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is damaged; choose another --output_dir, or remove it: {error}") from error
    if not isinstance(run, dict) or any(
        not isinstance(run.get(name), dict) for name in ("config", "inputs", "counts")
    ):
        raise ValueError(f"{path} describes no run; choose another --output_dir, or remove it")
    return run


def describe_run(
    directory: Path, config: dict, inputs: Iterable[Path | str] = (), counts: dict | None = None
) -> None:
    """Write `run.json`: what was run, with what, on which data, and what came out."""
    description = {
        "command": " ".join(sys.argv),
        "config": config,
        "seed": config.get("seed"),
        "inputs": {str(path): fingerprint(path) for path in inputs},
        "counts": counts or {},
        "git_commit": git_commit(),
        "python": platform.python_version(),
        "versions": versions(),
    }
    write_json(directory / "run.json", description)


def write_json(path: Path, value: object) -> None:
    """Whole or not at all, with a newline at the end."""
    temporary = path.with_name(path.name + ".part")
    text = json.dumps(value, indent=2, ensure_ascii=False, default=str)
    # A file name that is not UTF-8 stays a JSON escape.
    temporary.write_text(text + "\n", encoding="utf-8", errors="backslashreplace")
    temporary.replace(path)


def fingerprint(path: Path | str) -> str:
    """SHA-256 of a file's bytes, shortened."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def git_commit() -> str | None:
    """The commit of the code that runs, with "+" when the tree differs from it; None outside a repository."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty=+", "--abbrev=12"]
    if shutil.which("git") is None:
        return None
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or None


def versions() -> dict[str, str]:
    installed = {dist.metadata["Name"].lower(): dist.version for dist in importlib.metadata.distributions()}
    return {name: installed[name] for name in PACKAGES if name in installed}


def status_of_unused(num_unused: int, word: str, path: Path, on_error: str) -> int:
    """Says where the rows that were not used stand; the exit status of a command that has some."""
    if not num_unused:
        return 0
    status = int(on_error == "fail")
    advice = "" if status == 0 else "; with --on_error skip it is 0"
    print(f"{num_unused} {word}, why: {path}; exit status {status}{advice}", file=sys.stderr)
    return status
