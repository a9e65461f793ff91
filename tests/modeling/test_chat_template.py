"""Masks are exact, and the prefix a student is trained on is the prompt a server computes."""

from importlib.resources import files

import pytest

from modeling.chat_template import (
    IGNORED,
    PrefixError,
    StopTokenError,
    prompt_ids,
    render_pair,
    supervised_text,
)

PROMPT = [{"role": "user", "content": "Fasse zusammen: 青石桥长412米, résumé 🙂 with  two spaces\n\n"}]
ANSWER = [{"role": "assistant", "content": "<summary>\nBridge: 412 m [p3]\n</summary>"}]


@pytest.fixture
def tokenizer(smollm2_tokenizer, monkeypatch: pytest.MonkeyPatch):
    """Tests may set its chat template; the one of the session is put back."""
    monkeypatch.setattr(smollm2_tokenizer, "chat_template", smollm2_tokenizer.chat_template)
    return smollm2_tokenizer


def test_labels_are_exactly_the_completion_and_its_stop_token(tokenizer) -> None:
    pair = render_pair(tokenizer, PROMPT, ANSWER)
    assert supervised_text(tokenizer, pair) == ANSWER[0]["content"] + "<|im_end|>"
    assert pair.input_ids[-1] == tokenizer.eos_token_id
    assert pair.labels[: pair.num_prompt_tokens] == [IGNORED] * pair.num_prompt_tokens
    assert pair.labels[pair.num_prompt_tokens :] == pair.completion_ids


def test_training_prefix_is_the_serving_prompt(tokenizer) -> None:
    """A server renders and tokenizes the messages alone, as `apply_chat_template` does."""
    served = tokenizer.apply_chat_template(PROMPT, add_generation_prompt=True, return_dict=False)
    pair = render_pair(tokenizer, PROMPT, ANSWER)
    assert pair.input_ids[: pair.num_prompt_tokens] == served == prompt_ids(tokenizer, PROMPT)


@pytest.mark.parametrize(
    "name", ["qwen3", "qwen3_instruct_2507", "qwen3_5_think", "qwen3_5_nothink", "qwen2_5"]
)
@pytest.mark.parametrize("enable_thinking", [None, True, False])
def test_templates_of_larger_students_keep_the_prefix(tokenizer, name: str, enable_thinking) -> None:
    tokenizer.chat_template = (files("trl") / "chat_templates" / f"{name}.jinja").read_text()
    pair = render_pair(tokenizer, PROMPT, ANSWER, enable_thinking)
    assert pair.input_ids[: pair.num_prompt_tokens] == prompt_ids(tokenizer, PROMPT, enable_thinking)
    assert supervised_text(tokenizer, pair).endswith(ANSWER[0]["content"] + "<|im_end|>")


def test_template_that_rewrites_the_prompt_is_refused(tokenizer) -> None:
    tokenizer.chat_template = (
        "{{ messages|length }}{% for m in messages %}{{ m.content }}<|im_end|>{% endfor %}"
    )
    with pytest.raises(PrefixError, match="does not continue the prompt"):
        render_pair(tokenizer, PROMPT, ANSWER)


def test_template_without_stop_token_is_refused(tokenizer) -> None:
    tokenizer.chat_template = "{% for m in messages %}{{ m.content }}\n{% endfor %}"
    with pytest.raises(StopTokenError, match="does not end a turn"):
        render_pair(tokenizer, PROMPT, ANSWER)
