"""JSONL files that survive kills and foreign hands."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from condensery.files.jsonl import (
    BadLine,
    JsonlAppender,
    dump_row,
    read_jsonl,
    read_records,
    repair_tail,
    scan_jsonl,
    write_jsonl,
)


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def test_bad_lines_are_named_and_the_good_rows_after_them_kept(tmp_path: Path) -> None:
    bom, digits = b"\xef\xbb\xbf", b"1" * 5000
    lines = [bom + b'{"a": 1}\r\n', b"\n",
             b'{"a": \n', b"[1]\n", b'{"a": "\xff"}\n', b"\x00\n", digits + b"\n",
             b'{"a": 2}\n', b'{"a": "tor']  # fmt: skip
    path = write(tmp_path / "rows.jsonl", b"".join(lines))
    found = dict(scan_jsonl(path))
    assert found[1] == {"a": 1} and found[8] == {"a": 2} and 2 not in found
    reasons = {number: row.reason for number, row in found.items() if isinstance(row, BadLine)}
    assert set(reasons) == {3, 4, 5, 6, 7, 9}
    assert "a JSON list, not an object" in reasons[4] and "not UTF-8" in reasons[5]
    assert "torn last line" in reasons[9] and "torn" not in reasons[3]
    with pytest.raises(ValueError, match=r"rows.jsonl:3: .*\n.*rows.jsonl:4"):
        read_jsonl(path)


@given(row=st.dictionaries(st.text(), st.text() | st.integers() | st.none() | st.lists(st.text())))
def test_every_row_is_one_line_and_reads_back(row: dict) -> None:
    line = dump_row(row)
    assert line.count(b"\n") == 1 and line.endswith(b"\n")
    assert json.loads(line) == row


def test_text_stays_readable_and_lone_surrogates_survive() -> None:
    assert "磨坊 \u2028".encode() in dump_row({"a": "磨坊 \u2028"})
    assert json.loads(dump_row({"a": "\ud83d"})) == {"a": "\ud83d"}


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    write_jsonl(path, [{"a": 1}])

    def rows():
        yield {"a": 2}
        raise RuntimeError("half way")

    with pytest.raises(RuntimeError):
        write_jsonl(path, rows())
    assert read_jsonl(path) == [{"a": 1}]


@pytest.mark.parametrize("torn", range(1, 12))
def test_a_torn_tail_is_cut_off_before_anything_is_appended(tmp_path: Path, torn: int) -> None:
    row = dump_row({"a": "é"})
    path = write(tmp_path / "rows.jsonl", row + row[: torn % len(row)])
    with JsonlAppender(path) as rows:
        rows.append({"a": 3})
    assert read_jsonl(path)[-1] == {"a": 3} and read_jsonl(path)[0] == {"a": "é"}
    assert len(read_jsonl(path)) == 3 if torn == len(row) - 1 else 2


def test_repair_says_how_much_went(tmp_path: Path) -> None:
    assert repair_tail(tmp_path / "absent.jsonl") == 0
    assert repair_tail(write(tmp_path / "a.jsonl", b'{"a": 1}\n')) == 0
    assert repair_tail(write(tmp_path / "b.jsonl", b'{"a": 1}\n{"a": ')) == 6
    path = write(tmp_path / "c.jsonl", b'{"a": 1}')
    assert repair_tail(path) == 0 and path.read_bytes() == b'{"a": 1}\n'


def test_a_killed_writer_leaves_whole_rows_and_at_most_one_torn_line(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    code = (
        "import sys, itertools; from condensery.files.jsonl import JsonlAppender\n"
        "with JsonlAppender(sys.argv[1]) as rows:\n"
        "    for number in itertools.count(): rows.append({'n': number, 'pad': 'x' * 5000})"
    )
    writer = subprocess.Popen([sys.executable, "-c", code, str(path)])
    while not path.exists() or path.stat().st_size < 100_000:
        time.sleep(0.005)
    writer.kill()
    writer.wait()
    repair_tail(path)
    numbers = [row["n"] for row in read_jsonl(path)]
    assert numbers == list(range(len(numbers))) and len(numbers) >= 19


class Point(BaseModel):
    x: int
    names: list[str] = []


def test_records_are_read_or_refused_by_place_and_field(tmp_path: Path) -> None:
    path = write(tmp_path / "points.jsonl", b'{"x": 1}\n\n{"x": 2, "names": ["a"]}\n')
    assert list(read_records(path, Point)) == [Point(x=1), Point(x=2, names=["a"])]
    write(path, b'{"x": 1}\n{"x": "one", "names": [3]}\n')
    with pytest.raises(
        ValueError, match=r"points.jsonl:2: no point: x: .*integer.*, got \"one\"; names.0: .*got 3"
    ):
        list(read_records(path, Point))
    write(path, b"{}\n")
    with pytest.raises(ValueError, match=r"points.jsonl:1: no point: x: Field required$"):
        list(read_records(path, Point))
