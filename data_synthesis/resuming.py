"""A resumed run must be the same run: same settings, same inputs."""

import json
from collections.abc import Iterable
from pathlib import Path

from condensery.files.run_directory import fingerprint

MAY_CHANGE = {"resume", "concurrency", "on_error", "dry_run", "limit"}


def check_same_run(directory: Path, config: dict, inputs: Iterable[Path]) -> None:
    """Raises ValueError naming every setting or input that differs from those of the run in `directory`."""
    path = directory / "run.json"
    if not path.exists():
        return
    before = json.loads(path.read_text(encoding="utf-8"))
    now = {name: str(value) for name, value in config.items() if name not in MAY_CHANGE}
    then = {name: str(value) for name, value in before["config"].items() if name not in MAY_CHANGE}
    changed = sorted(name for name in now.keys() | then.keys() if now.get(name) != then.get(name))
    changed += [str(input) for input in inputs if before["inputs"].get(str(input)) != fingerprint(input)]
    if changed:
        raise ValueError(
            f"{directory} holds a run that differs in {', '.join(changed)}; choose another --output_dir"
        )
