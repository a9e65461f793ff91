"""Every kind of bad row is found, all of them at once, and a good set passes untouched."""

import json
from pathlib import Path

import pytest

from modeling.preflight import main
from modeling.row_checks import check_rows


def completion(text: str) -> list[dict]:
    return [{"role": "assistant", "content": text}]


def test_good_rows_pass_in_order(smollm2_tokenizer, make_pair) -> None:
    rows = [make_pair(number) for number in range(3)]
    result = check_rows(rows, smollm2_tokenizer, 1024)
    assert not result.problems and len(result.pairs) == 3
    assert "3 good rows" in result.report()


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
        make_pair(8) | dict(prompt=[{"role": "tool", "content": "x"}]),
        make_pair(9) | dict(prompt=[{"role": "user", "content": "half \ud83d"}]),
        make_pair(0),
    ]
    result = check_rows(rows, smollm2_tokenizer, 200)
    reasons = {problem.row: problem.reason for problem in result.problems}
    assert reasons == {
        "pair-1": "empty_completion",
        "pair-2": "not_a_summary",
        "pair-3": "control_token",
        "pair-4": "prompt_template",
        "pair-5": "too_long",
        "pair-6": "shape",
        "pair-7": "shape",
        "pair-8": "shape",
        "pair-9": "shape",
        "pair-0": "duplicate_id",
    }
    assert len(result.pairs) == 1


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("{{ messages|length }}{% for m in messages %}{{ m.content }}<|im_end|>{% endfor %}", "prefix"),
        ("{% for m in messages %}{{ m.content }}\n{% endfor %}", "stop_token"),
        ("{% for m in messages %}{{ m.content[:20] }}<|im_end|>{% endfor %}", "mask"),
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
    result = check_rows([make_pair(0)], smollm2_tokenizer, 1024)
    assert [problem.reason for problem in result.problems] == [reason]


def test_command_exits_by_outcome(
    tmp_path: Path,
    pairs_file: Path,
    make_pair,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main([str(pairs_file), "--model", "smollm2-135m-instruct"]) == 0
    bad = tmp_path / "bad.jsonl"
    bad.write_text(json.dumps(make_pair(20) | dict(completion=completion("none"))) + "\n")
    assert main([str(bad), "--model", "smollm2-135m-instruct"]) == 1
    assert "pair-20: not_a_summary" in capsys.readouterr().out
    with pytest.raises(SystemExit) as stopped:
        main([str(tmp_path / "missing.jsonl"), "--model", "smollm2-135m-instruct"])
    assert stopped.value.code == 2 and "no pairs file" in capsys.readouterr().err
