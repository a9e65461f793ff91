"""The guards let honest summaries through and name what they are for."""

import pytest

from condensery.prompt import render_history
from condensery.summary import wrap_summary
from reconstruct.guards import copy_rate, guard_penalty, is_well_formed, repetition_rate, unsupported_share
from tests.reconstruct.known_histories import HONEST, HONEST_ZH, chinese, compaction


def test_an_honest_summary_is_not_punished() -> None:
    assert guard_penalty(HONEST, compaction()) == 0
    assert guard_penalty(HONEST_ZH, chinese()) == 0


STATEMENTS = [
    ("In 2018, Amber Bay had 12,345 inhabitants.", 0),
    ("Population of Amber Bay: 12345 (2018).", 0),
    ("In Amber Bay 12,345 people live.", 0),  # "In" is no part of the name
    ("Amber Bay's population is 12,345.", 0),
    ("Nothing was found yet.", 0),
    ("In 2018, Amber Bay had 12,346 inhabitants.", 1),  # stands nowhere
    ("In 2018, Amber Bay had 2,345 inhabitants.", 1),  # no number of its own
    ("In 2018, Amber Bay had 54,321 inhabitants.", 1),  # the number of another town
    ("In 2018 it had 12,345 inhabitants.", 0),  # nobody named
    ("Readers asked Amber Bay for 12,345 more.", 0),  # a paragraph says "it": one line is enough
    ("The mayor of Amber Bay is Caspar Fenn.", 1),
    ("The mayor of Amber Bay is Doris Lowell.", 1),
    ("Said to be “a place of great beauty”.", 1),
    ("See https://example.org/amber.", 1),
    ("- [p101] In 2018, Amber Bay had 12,345 inhabitants.\n- [p999] It is a town.", 0.5),
]


@pytest.mark.parametrize(("summary", "share"), STATEMENTS)
def test_unsupported(summary: str, share: float) -> None:
    assert unsupported_share(summary, compaction()) == share


def test_unsupported_in_chinese_stands_nowhere() -> None:
    assert unsupported_share("- [p101] 2018年琥珀镇有12345人。", chinese()) == 0
    assert unsupported_share("琥珀镇有99999人。", chinese()) == 1


def test_what_the_last_summary_says_is_supported_and_no_copy() -> None:
    carried = "- [p7] Port Kessel has stood on the northern shore of the lake since 1812."
    later = compaction().model_copy(update={"last_summary": carried})
    assert guard_penalty(carried, later) == 0
    assert guard_penalty(carried, compaction()) == 2


@pytest.mark.parametrize("of", [compaction(), chinese()])
def test_copy_and_repetition(of) -> None:
    history = render_history(of.expired)
    assert copy_rate(history, history) == 1
    assert copy_rate("", history) == repetition_rate("") == 0
    assert guard_penalty(history, of) == 2
    line = (HONEST if of.language == "en" else HONEST_ZH).splitlines()[1]
    assert repetition_rate("\n".join([line] * 8)) == 7 / 8
    assert repetition_rate(line) == 0
    assert guard_penalty(" ".join([line] * 8), of) > 1


FORMATS = [
    (wrap_summary(HONEST), "stop", True),
    (f"Here it is: {wrap_summary(HONEST)}", "stop", True),
    (wrap_summary(HONEST) * 2, "stop", False),
    (wrap_summary(HONEST), "length", False),
    (HONEST, "stop", False),
    (wrap_summary(""), "stop", False),
    (wrap_summary("N/A"), "stop", False),
]


@pytest.mark.parametrize(("completion", "finish_reason", "passes"), FORMATS)
def test_format_gate(completion: str, finish_reason: str, passes: bool) -> None:
    assert is_well_formed(completion, finish_reason) is passes
