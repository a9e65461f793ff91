"""Every kind of bad row is found, all of them at once, and a good set passes untouched."""

import pytest

from condensery.files.jsonl import BadLine
from modeling.pair_rows import leaked_questions
from modeling.row_checks import MAX_LINES, CheckedRows, Problem, check_rows


def completion(text: str) -> list[dict]:
    return [{"role": "assistant", "content": text}]


def check(rows: list, tokenizer, max_length: int) -> CheckedRows:
    """A row's place is its position."""
    return check_rows([(str(place), row) for place, row in enumerate(rows)], tokenizer, max_length)


def test_good_rows_pass_in_order(smollm2_tokenizer, make_pair) -> None:
    rows = [make_pair(number) for number in range(3)]
    result = check(rows, smollm2_tokenizer, 1024)
    assert not result.problems and len(result.pairs) == 3
    assert "3 good rows" in result.summary() and not result.complaints()


def test_all_problems_are_listed_at_once(smollm2_tokenizer, make_pair) -> None:
    rows = [
        make_pair(0),
        make_pair(1) | dict(completion=completion("  ")),
        make_pair(2) | dict(completion=completion("no block")),
        make_pair(3) | dict(prompt=[{"role": "user", "content": "a <|im_end|> inside"}]),
        make_pair(4) | dict(prompt_template="other_v1"),
        make_pair(5) | dict(prompt=[{"role": "user", "content": "long " * 300}]),
        make_pair(6) | dict(prompt=[]),
        make_pair(7) | dict(completion=[{"role": "user", "content": "x"}]),
        make_pair(8) | dict(prompt=[{"content": "x"}]),
        make_pair(9) | dict(prompt=[{"role": "tool", "content": "x", "tool_call_id": "call-1"}]),
        make_pair(10) | dict(prompt=[{"role": "user", "content": "half \ud83d"}]),
        BadLine("not UTF-8 at byte 7"),
        make_pair(0),
    ]
    result = check(rows, smollm2_tokenizer, 200)
    assert [(int(problem.place), problem.reason) for problem in result.problems] == [
        (1, "empty_completion"),
        (2, "not_a_summary"),
        (3, "control_token"),
        (4, "prompt_template"),
        (5, "too_long"),
        (6, "shape"),
        (7, "shape"),
        (8, "shape"),
        (9, "orphaned_result"),
        (10, "shape"),
        (11, "unreadable"),
        (12, "duplicate_id"),
    ]
    assert list(result.pairs) == ["0"]


def test_a_question_in_both_splits_is_told_with_both_places(make_pair) -> None:
    train = [("train:1", BadLine("x")), ("train:2", make_pair(1)), ("train:3", make_pair(2))]
    held_out = [("held:1", make_pair(3)), ("held:2", make_pair(2) | {"id": "other"}), ("held:3", {})]
    [problem] = leaked_questions(train, held_out)
    assert problem.place == "held:2" and problem.reason == "both_splits" and "train:3" in problem.detail


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("{{ messages|length }}{% for m in messages %}{{ m.content }}<|im_end|>{% endfor %}", "prefix"),
        ("{% for m in messages %}{{ m.content }}\n{% endfor %}", "stop_token"),
        ("{% for m in messages %}{{ m.content[:20] }}<|im_end|>{% endfor %}", "content"),
        ("{% for m in messages[1:] %}{{ m.content }}<|im_end|>{% endfor %}", "content"),
        (
            "{% for m in messages %}{{ m.content if loop.first else m.content[:5] }}<|im_end|>{% endfor %}",
            "mask",
        ),
        ("{{ messages + 5 }}", "shape"),
        ("{{ raise_exception('roles must alternate') }}", "shape"),
    ],
)
def test_bad_chat_templates_are_named(
    smollm2_tokenizer,
    make_pair,
    monkeypatch: pytest.MonkeyPatch,
    template: str,
    reason: str,
) -> None:
    monkeypatch.setattr(smollm2_tokenizer, "chat_template", template)
    result = check([make_pair(0)], smollm2_tokenizer, 1024)
    assert [problem.reason for problem in result.problems] == [reason]


@pytest.mark.parametrize(
    "changes",
    [
        {"completion": [{"role": "assistant", "content": "<think>why</think>\n<summary>\nx\n</summary>"}]},
        {"reasoning": "a <think> b"},
        {"reasoning": "a </think> b"},
        {"reasoning": "half \ud83d"},
        {"reasoning": 5},
    ],
)
def test_thoughts_stand_in_their_own_field(changes: dict, smollm2_tokenizer, make_pair) -> None:
    [problem] = check([make_pair(0) | changes], smollm2_tokenizer, 1024).problems
    assert problem.reason == "shape" and ("reasoning" in problem.detail)


def test_one_fault_of_all_rows_is_not_told_of_each() -> None:
    faults = [Problem(f"train.jsonl:{line}", "no_reasoning", "none") for line in range(1, 401)]
    told = CheckedRows(problems=faults).complaints()
    assert len(told) == MAX_LINES + 2 and told[-2] == "400 x no_reasoning" and "--thinking none" in told[-1]
