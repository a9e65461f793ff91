"""The envelope of a log file: JSON, a JSON list, or JSON lines, whatever its extension says.

Every row comes with its place; a line that cannot be read is named and the rows after it are kept.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from condensery.files.jsonl import parse_json

BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Row:
    """One JSON value of a log with its place: the line in a file of lines, the item in a list, from 1."""

    line: int
    value: Any


@dataclass(frozen=True)
class BadRow:
    line: int
    reason: str


def read_rows(path: Path) -> Iterator[Row | BadRow]:
    """All rows of a log file; a file with a turn on each line is one row."""
    data = path.read_bytes().removeprefix(BOM)
    if not data.strip():
        yield BadRow(0, "the file is empty")
        return
    whole = _parse(data)
    # Only what is no single document is read by lines: an indented one has line breaks, too.
    if isinstance(whole, str) and b"\n" in data.strip():
        rows = list(_read_lines(data))
        values = [row.value for row in rows if isinstance(row, Row)]
        yield from [Row(1, values)] if len(values) == len(rows) and _is_conversation(values) else rows
    elif isinstance(whole, str):
        yield BadRow(1, whole)
    else:
        yield from _unfold(whole.value)


def _read_lines(data: bytes) -> Iterator[Row | BadRow]:
    """An indented document that is broken would give one complaint a line; it gives one."""
    lines = data.split(b"\n")
    rows: list[Row | BadRow] = []
    for number, line in enumerate(lines, start=1):
        if line.strip():
            parsed = _parse(line)
            torn = " (torn last line)" if number == len(lines) else ""
            if isinstance(parsed, str):
                rows.append(BadRow(number, parsed + torn))
            else:
                rows.append(Row(number, parsed.value))
    is_indented = data.lstrip()[:2].strip() in (b"{", b"[")
    if is_indented and not any(isinstance(row, Row) and isinstance(row.value, dict) for row in rows):
        rows = [BadRow(1, f"a JSON document that does not parse: {_parse(data)}")]
    yield from rows


def _parse(data: bytes) -> Row | str:
    """The value, or what is wrong with it."""
    try:
        return Row(1, parse_json(data))
    except ValueError as error:
        return str(error)


def _unfold(value: object) -> Iterator[Row]:
    """A list holds rows, unless it is one conversation: then it is one row."""
    if isinstance(value, list) and not _is_conversation(value):
        yield from (Row(number, item) for number, item in enumerate(value, start=1))
    else:
        yield Row(1, value)


def _is_conversation(items: list) -> bool:
    return bool(items) and all(
        isinstance(item, dict) and ("role" in item or "from" in item) for item in items
    )
