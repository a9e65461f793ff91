"""The extractive baseline copies what bears on the task, with its source, and says the same every time."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from condensery.compaction import Compaction
from condensery.message import FunctionCall, Message, ToolCall
from condensery.tokens import count_tokens
from data_synthesis.extractive import extract

SEARCH = ToolCall(
    id="c", function=FunctionCall(name="search", arguments='{"query": "Aldermoor bridge length"}')
)
RESULTS = """## Web Results
1. [Aldermoor bridge](https://en.example.org/wiki/Aldermoor_(bridge))

The Aldermoor bridge opened in 1912 and has a length of 1,204 metres.
Cookies help us to deliver our services, accept them all to go on.

2. [Gardening tips](https://garden.example.org/roses)

Roses want six hours of sun a day and a soil that is not too wet.
"""


def compaction_of(task: str, *contents: str, last_summary: str | None = None) -> Compaction:
    expired = [Message(role="assistant", tool_calls=[SEARCH])]
    expired += [Message(role="tool", content=content, tool_call_id="c") for content in contents]
    return Compaction(
        id="x",
        trajectory_id="t",
        question_id="q",
        index=0,
        task=task,
        expired=expired,
        last_summary=last_summary,
    )


def test_sentences_that_bear_on_the_task_come_with_their_source() -> None:
    summary = extract(compaction_of("How long is the Aldermoor bridge?", RESULTS), 60, None)
    assert "1,204 metres. [https://en.example.org/wiki/Aldermoor_(bridge)]" in summary
    assert "Roses" not in summary and "Web Results" not in summary
    assert summary == extract(compaction_of("How long is the Aldermoor bridge?", RESULTS), 60, None)


def test_chinese_text_is_searched_by_its_characters() -> None:
    page = "玫瑰每天需要六小时阳光。奥德摩尔大桥全长一千二百零四米，一九一二年通车。请接受所有小甜饼。"
    summary = extract(compaction_of("奥德摩尔大桥有多长？", page), 30, None)
    assert "一千二百零四米" in summary and "玫瑰" not in summary and summary.endswith("[search]")


def test_what_was_kept_once_is_carried_over_with_its_source() -> None:
    kept = "- The Aldermoor bridge has a length of 1,204 metres. [https://a.example/1]"
    summary = extract(
        compaction_of("How long is the Aldermoor bridge?", RESULTS, last_summary=kept), 40, None
    )
    assert kept in summary


@pytest.mark.parametrize("max_tokens", [20, 50, 200])
def test_the_budget_holds(max_tokens: int) -> None:
    summary = extract(compaction_of("How long is the Aldermoor bridge?", RESULTS * 20), max_tokens, None)
    assert count_tokens(summary, None) <= max_tokens


def test_calls_stand_first_so_that_none_is_repeated() -> None:
    call = '- search({"query": "Aldermoor bridge length"})'
    summary = extract(compaction_of("How long is the Aldermoor bridge?", RESULTS), 80, None)
    assert summary.startswith(call + "\n- ") and summary.count(call) == 1
    assert extract(compaction_of("How long?", "ok"), 50, None) == call


def test_a_call_that_takes_most_of_the_budget_is_left_out() -> None:
    summary = extract(compaction_of("How long is the Aldermoor bridge?", RESULTS), 40, None)
    assert "1,204 metres" in summary and "search(" not in summary


def test_a_history_without_call_and_sentence_gives_nothing() -> None:
    compaction = compaction_of("How long?", "ok")
    compaction.expired.pop(0)
    assert extract(compaction, 50, None) == ""


def test_every_process_takes_the_same_sentences() -> None:
    """Sets of words iterate in another order in every process, and sums of floats depend on the order."""
    code = (
        "from tests.data_synthesis.test_extractive import compaction_of, extract\n"
        "units = [[f'w{k}x{n // k}' for k in range(1, 12)] for n in range(120)]\n"  # all with equal scores
        "lines = [' '.join(words) for words in units]\n"
        "print(extract(compaction_of('Which bridge is w1 and w2?', *lines), 900, None))"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=Path(__file__).parents[2],
            env=os.environ | {"PYTHONHASHSEED": str(seed)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in range(4)
    }
    assert len(outputs) == 1 and outputs.pop().strip()
