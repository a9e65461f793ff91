"""JSONL that survives a crash: whole rows, flushed; a torn last line is repaired before any append."""

import fcntl
import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

MAX_SHOWN = 4  # wrong fields in one message
Record = TypeVar("Record", bound=BaseModel)


@dataclass(frozen=True)
class BadLine:
    """A line that is not a JSON object, with the reason."""

    reason: str


def scan_jsonl(path: Path | str) -> Iterator[tuple[int, dict | BadLine]]:
    """(line number, row or what is wrong with it) for every line that is not blank."""
    with open(path, "rb") as file:
        for number, raw in enumerate(file, start=1):
            line = raw.removeprefix(b"\xef\xbb\xbf") if number == 1 else raw
            if line.strip():
                yield number, _parse(line)


def parse_json(text: str | bytes, strict: bool = True) -> Any:
    """The value of a JSON text from anywhere. Raises ValueError for whatever is wrong with it.

    `strict` off: raw line breaks in strings, as models write them, are taken.
    """
    try:
        return json.loads(text.decode("utf-8") if isinstance(text, bytes) else text, strict=strict)
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 at byte {error.start}") from error
    except RecursionError as error:  # a model that repeats "[" until its budget ends
        raise ValueError("not JSON: nested too deep") from error
    except ValueError as error:
        raise ValueError(f"not JSON: {error}") from error


def read_json(path: Path) -> Any:
    """The value of a file of JSON. Raises ValueError naming it where it holds something else."""
    try:
        return parse_json(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _parse(line: bytes) -> dict | BadLine:
    try:
        row = parse_json(line)
    except ValueError as error:
        return BadLine(f"{error}" if line.endswith(b"\n") else f"{error} (torn last line)")
    return row if isinstance(row, dict) else BadLine(f"a JSON {type(row).__name__}, not an object")


def read_jsonl(path: Path | str) -> list[dict]:
    """All rows of a file of ours. Raises ValueError naming the file and all bad lines."""
    rows, bad = [], []
    for number, row in scan_jsonl(path):
        if isinstance(row, BadLine):
            bad.append(f"{path}:{number}: {row.reason}")
        else:
            rows.append(row)
    if bad:
        raise ValueError("\n".join(bad))
    return rows


def read_records(path: Path | str, kind: type[Record]) -> Iterator[Record]:
    """The rows of a file of ours as pydantic models. Raises ValueError naming file, line and wrong fields."""
    for line, row in scan_jsonl(path):
        if isinstance(row, BadLine):
            raise ValueError(f"{path}:{line}: {row.reason}")
        try:
            record = to_record(row, kind)
        except ValueError as error:
            raise ValueError(f"{path}:{line}: no {kind.__name__.lower()}: {error}") from error
        yield record


def to_record(row: dict, kind: type[Record]) -> Record:
    """The row as a pydantic model. Raises ValueError that names each wrong field and what stands there."""
    try:
        return kind.model_validate(row)
    except ValidationError as error:
        wrong = [_describe(each) for each in error.errors()]
        more = [f"and {len(wrong) - MAX_SHOWN} more"] if len(wrong) > MAX_SHOWN else []
        raise ValueError("; ".join(wrong[:MAX_SHOWN] + more)) from error


def _describe(wrong: ErrorDetails) -> str:
    field = ".".join(map(str, wrong["loc"]))
    value = json.dumps(wrong["input"], ensure_ascii=False, default=str)
    shown = value if len(value) <= 60 else value[:57] + "..."
    return f"{field}: {wrong['msg']}" + ("" if wrong["type"] == "missing" else f", got {shown}")


def dump_row(row: dict) -> bytes:
    """One line. Lone surrogates (broken emoji in logs) stay JSON escapes, everything else is readable."""
    try:
        return (json.dumps(row, ensure_ascii=False) + "\n").encode()
    except UnicodeEncodeError:
        return (json.dumps(row) + "\n").encode()


def write_jsonl(path: Path | str, rows: Iterable[dict]) -> None:
    """A whole file at once, or nothing."""
    with replace_jsonl(path) as write:
        for row in rows:
            write(row)


@contextmanager
def replace_jsonl(path: Path | str) -> Iterator[Callable[[dict], object]]:
    """Takes row by row; written beside its place and moved there at the end, unless an error came."""
    temporary = Path(f"{path}.part")
    with open(temporary, "wb") as file:
        yield lambda row: file.write(dump_row(row))
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


class JsonlAppender:
    """Appends rows, each with one write call: a killed process leaves at most one torn line.

    One process at a time: raises BlockingIOError while another one appends to the file.
    """

    def __init__(self, path: Path | str) -> None:
        self.file = open(path, "ab", buffering=0)  # noqa: SIM115 - closed by __exit__
        try:
            fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BlockingIOError(f"{path} is being written by another process; wait for its end") from error
        # Only the owner may repair: a row that somebody is writing looks torn, too.
        repair_tail(path)

    def append(self, row: dict) -> None:
        line = dump_row(row)
        if self.file.write(line) != len(line):
            raise OSError(f"{self.file.name}: a row was written in part; is the disk full?")

    def __enter__(self) -> "JsonlAppender":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.file.close()


def repair_tail(path: Path | str) -> int:
    """Cut a torn last line off; how many bytes went. A complete row that only lacks its newline gets it."""
    if not Path(path).exists():
        return 0
    with open(path, "r+b") as file:
        data = file.read()
        torn = data[data.rfind(b"\n") + 1 :]
        if not torn:
            return 0
        # The row is whole, only its newline was lost: cutting it would lose a finished rollout.
        if isinstance(_parse(torn), dict):
            file.write(b"\n")
            return 0
        file.truncate(len(data) - len(torn))
        return len(torn)
