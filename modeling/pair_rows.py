"""Reading pairs files line by line, so that whatever is wrong with a row is said with its place."""

from itertools import islice
from pathlib import Path

from condensery.files.jsonl import BadLine, scan_jsonl
from modeling.row_checks import Problem

Row = tuple[str, dict | BadLine]  # (file:line, the row or what is wrong with the line)


def read_pairs(path: Path, limit: int | None = None) -> list[Row]:
    """All lines of a pairs file. Raises ValueError where it is missing or empty."""
    if not path.is_file():
        what = f"{path} is no file" if path.exists() else f"no pairs file {path}"
        raise ValueError(f"{what}; `condensery pairs` writes pairs")
    rows: list[Row] = [(f"{path}:{line}", row) for line, row in islice(scan_jsonl(path), limit)]
    if not rows:
        raise ValueError(f"{path} holds no rows")
    return rows


def leaked_questions(train: list[Row], held_out: list[Row]) -> list[Problem]:
    """Held-out rows whose question is trained on: their loss would measure memory."""
    places = {_question(row): place for place, row in reversed(train)}
    return [
        Problem(place, "both_splits", f"its question is trained on: {places[_question(row)]}")
        for place, row in held_out
        if _question(row) and _question(row) in places
    ]


def _question(row: dict | BadLine) -> str | None:
    named = row.get("question_id") if isinstance(row, dict) else None
    return None if named is None else str(named)
