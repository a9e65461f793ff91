"""The summary parser's truth table, and training targets that every reader takes back whole."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from condensery.summary import Summary, check_gain, parse_summary, wrap_summary

BLOCK = "<summary>\nThe mill was built in 1843 [p7].\n</summary>"
TEXT = "The mill was built in 1843 [p7]."

ACCEPTED = [
    (BLOCK, TEXT),
    (f"<think>\nWhat matters?\n</think>\n\n{BLOCK}", TEXT),
    (f"thinking that was opened in the prompt\n</think>\n{BLOCK}", TEXT),
    (f"<think>a</think><think>b</think>{BLOCK}", TEXT),
    (f"<think>I will write <summary>draft</summary> first</think>{BLOCK}", TEXT),
    (f"<think>I will open <summary> and never close</think>{BLOCK}", TEXT),
    (f"Here is the summary:\n{BLOCK}\nI hope it helps.", TEXT),
    (f"```xml\n{BLOCK}\n```", TEXT),
    (BLOCK.replace("summary", "SUMMARY"), TEXT),
    ("<summary>a <summary>b</summary> c</summary>", "a <summary>b</summary> c"),
    ("<summary>The tool_call was <tool_call>{}</tool_call>, quoted.</summary>", None),
    ("<summary>Task: find the year.\nOpen: none\n</summary>", "Task: find the year.\nOpen: none"),
    ("<summary>\n磨坊建于1843年。\n</summary>", "磨坊建于1843年。"),
    ("<summary>None of the sources agree.</summary>", "None of the sources agree."),
    ("<summary>Unknown Pleasures, 1979</summary>", "Unknown Pleasures, 1979"),
]

FAILED = [
    (None, "null"),
    ("", "empty"),
    (" \n\t", "whitespace"),
    ("<summary></summary>", "empty"),
    ("<summary>\n \n</summary>", "whitespace"),
    ("<think>all of it</think>", "thinking_only"),
    ("all of it</think>\n\n", "thinking_only"),
    ("<think>and on", "unclosed_thinking"),
    (f"<think>and on {BLOCK}", "unclosed_thinking"),
    (f"<think>a</think><think>and on {BLOCK}", "unclosed_thinking"),
    (f"<think>{BLOCK}</think> done", "no_block"),
    ("<summary>It says </think> in the page.</summary>", "no_block"),
    ("<summary>It says </think> and <think> in the page.</summary>", "unclosed_thinking"),
    ("The mill was built in 1843.", "no_block"),
    ("The mill was built in 1843.</summary>", "no_block"),
    ("<summary>The mill was built", "unclosed_block"),
    ("<summary>a <summary>b</summary>", "unclosed_block"),
    (BLOCK + BLOCK, "two_blocks"),
    (f"{BLOCK}\nOr:\n<summary>other</summary>", "two_blocks"),
    (f"{BLOCK}</summary>", "two_blocks"),
    (f"{BLOCK}<summary>", "unclosed_block"),
    ('<tool_call>{"name": "search"}</tool_call>', "tool_call"),
    (f'{BLOCK}<tool_call>{{"name": "search"}}</tool_call>', "tool_call"),
    ("<function=search><parameter=query>mill</parameter></function>", "tool_call"),
    ("<summary>...</summary>", "placeholder"),
    ("<summary>N/A</summary>", "placeholder"),
    ("<summary>[your summary here]</summary>", "placeholder"),
    ("<summary>- Facts: none\n- Open: ...\n</summary>", "placeholder"),
    ("<summary>**Facts:**\n**Open:**\n</summary>", "placeholder"),
    ("<summary>## Facts\n...\n## Open\n</summary>", "placeholder"),
    ("<summary>事实：无\n待查：暂无</summary>", "placeholder"),
]


@pytest.mark.parametrize(("content", "text"), ACCEPTED)
def test_accepted(content: str, text: str | None) -> None:
    summary = parse_summary(content)
    assert summary.failure is None and summary.text
    assert text is None or summary.text == text


@pytest.mark.parametrize(("content", "failure"), FAILED)
def test_failed(content: str | None, failure: str) -> None:
    assert parse_summary(content) == Summary(failure=failure)  # type: ignore[arg-type]


@pytest.mark.parametrize("piece", ["/", "-", " ", "a/", "a ", "*", "[", "{", "。", "-a", "\t:", "# "])
def test_a_blob_of_any_kind_is_read_in_one_pass(piece: str) -> None:
    """A model that repeats itself until its budget ends: a pattern that backtracks would hang for minutes."""
    for text in (piece * 100_000, f"Facts{piece * 100_000}", f"{piece * 20_000}:", f"{piece}\n" * 50_000):
        summary = parse_summary(f"<summary>{text}</summary>")
        assert (summary.text is None) != (summary.failure is None)


def test_finish_reason_and_calls_outrank_the_text() -> None:
    assert parse_summary(BLOCK, "length").failure == "length"
    assert parse_summary(BLOCK, "tool_calls", has_tool_calls=True).failure == "tool_call"
    assert parse_summary(None, "tool_calls", has_tool_calls=True).failure == "tool_call"


def test_a_summary_must_be_shorter_than_what_it_replaces() -> None:
    summary = Summary(text="short")
    assert check_gain(summary, 9, 10) == summary
    assert check_gain(summary, 10, 10).failure == "no_gain"
    assert check_gain(Summary(failure="empty"), 10, 10).failure == "empty"


@given(st.text())
def test_the_parser_never_raises_and_sets_exactly_one(content: str) -> None:
    summary = parse_summary(content)
    assert (summary.text is None) != (summary.failure is None)


@given(
    st.lists(st.sampled_from(["<summary>", "</summary>", "<think>", "</think>", "fact ", "\n"]), max_size=12)
)
def test_any_order_of_tags_has_an_outcome(parts: list[str]) -> None:
    summary = parse_summary("".join(parts))
    assert (summary.text is None) != (summary.failure is None)
    if summary.text is not None:
        assert summary.text.count("<summary>") == summary.text.count("</summary>")


@pytest.mark.parametrize(
    "text", [TEXT, "quotes <summary>x</summary> here", "a </summary> alone", "</think> kept", "<think> kept"]
)
def test_a_target_is_read_back_by_us_and_by_a_client_that_stops_at_the_first_closing_tag(text: str) -> None:
    target = wrap_summary(text)
    summary = parse_summary(target)
    assert summary.text is not None and summary.text.replace("&lt;", "<") == text
    assert target.split("<summary>")[1].split("</summary>")[0].strip() == summary.text
