"""Masks are exact, and the prefix a student is trained on is the prompt a server computes."""

from importlib.resources import files

import pytest

from condensery.summary import parse_summary
from condensery.thinking import Thinking
from modeling.chat_template import (
    IGNORED,
    ChatTemplateError,
    prompt_ids,
    render_pair,
    supervised_text,
    thinking_switch,
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


def test_the_vocabulary_is_that_of_qwen(qwen_tokenizer) -> None:
    assert qwen_tokenizer.encode("Hello world<|im_end|>") == [9707, 1879, 151645]


THOUGHT = "412 is the length.\nNothing else was asked."
CHATML = """{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"""
# As the Thinking-2507 models do.
FORCED = CHATML.replace("assistant\n{% endif", "assistant\n<think>\n{% endif")
OPEN, EMPTY = f"<think>\n{THOUGHT}\n</think>\n\n", "<think>\n\n</think>\n\n"
GOES_ON = OPEN.removeprefix("<think>\n")
PLAIN = {"keep": (OPEN, None), "empty": (EMPTY, False), "none": ("", None)}
# What each template's model writes before its answer, and the switch it is served with; None: refused.
TABLE: dict[str, dict[str, tuple[str, bool | None] | None]] = {
    "smollm2": PLAIN,
    "chatml": PLAIN,
    "qwen2_5": PLAIN,
    "qwen3_instruct_2507": PLAIN,
    "qwen3": PLAIN | {"empty": ("", False)},
    "qwen3_5_think": {"keep": (GOES_ON, None), "empty": ("", False), "none": None},
    "qwen3_5_nothink": {"keep": (GOES_ON, True), "empty": ("", False), "none": None},
    "forced": {"keep": (GOES_ON, None), "empty": ("\n</think>\n\n", False), "none": None},
}


@pytest.mark.parametrize("vocabulary", ["smollm2", "qwen"])
@pytest.mark.parametrize("thinking", ["keep", "empty", "none"])
@pytest.mark.parametrize("name", TABLE)
def test_every_template_with_every_setting(
    tokenizer, qwen_tokenizer, monkeypatch: pytest.MonkeyPatch, name: str, thinking: Thinking, vocabulary: str
) -> None:
    """The training prefix is the serving prompt; the labels are the thought, the answer, the stop token."""
    smollm2_template = tokenizer.chat_template
    tokenizer = qwen_tokenizer if vocabulary == "qwen" else tokenizer
    own = {"smollm2": smollm2_template, "chatml": CHATML, "forced": FORCED}
    text = own.get(name) or (files("trl") / "chat_templates" / f"{name}.jinja").read_text()
    monkeypatch.setattr(tokenizer, "chat_template", text)
    expected = TABLE[name][thinking]
    if expected is None:
        with pytest.raises(ChatTemplateError, match=f"--thinking {thinking} cannot be") as caught:
            render_pair(tokenizer, PROMPT, ANSWER, thinking, THOUGHT)
        assert caught.value.reason == "thinking" and tokenizer.name_or_path in str(caught.value)
        return
    thought, switch = expected
    assert thinking_switch(tokenizer, thinking) == switch
    pair = render_pair(tokenizer, PROMPT, ANSWER, thinking, THOUGHT)
    kwargs = {} if switch is None else {"enable_thinking": switch}
    served = tokenizer.apply_chat_template(PROMPT, add_generation_prompt=True, return_dict=False, **kwargs)
    assert pair.input_ids[: pair.num_prompt_tokens] == served == prompt_ids(tokenizer, PROMPT, switch)
    assert supervised_text(tokenizer, pair) == thought + ANSWER[0]["content"] + "<|im_end|>"
    assert pair.input_ids[-1] == tokenizer.eos_token_id
    answer = supervised_text(tokenizer, pair).removesuffix("<|im_end|>")
    assert parse_summary(answer).text == "Bridge: 412 m [p3]"


def test_template_that_rewrites_the_prompt_is_refused(tokenizer) -> None:
    tokenizer.chat_template = (
        "{{ messages|length }}{% for m in messages %}{{ m.content }}<|im_end|>{% endfor %}"
    )
    with pytest.raises(ChatTemplateError, match="does not continue the prompt"):
        render_pair(tokenizer, PROMPT, ANSWER)


def test_template_without_stop_token_is_refused(tokenizer) -> None:
    tokenizer.chat_template = "{% for m in messages %}{{ m.content }}\n{% endfor %}"
    with pytest.raises(ChatTemplateError, match="does not end a turn"):
        render_pair(tokenizer, PROMPT, ANSWER)
