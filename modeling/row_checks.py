"""What can be wrong with a training row, found by rendering it as it will be trained.

A row that does not fit is never cut, dropped or repaired here: a target cut away trains on nothing and
"succeeds".
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

import jinja2
from transformers import PreTrainedTokenizerBase

from condensery.message import LONE_SURROGATE, whole_characters
from condensery.summary import parse_summary
from modeling.chat_template import PrefixError, RenderedPair, StopTokenError, render_pair, supervised_text

ROLES = ("system", "user", "assistant")
Reason = Literal[
    "shape",  # not a prompt/completion row
    "duplicate_id",
    "prompt_template",  # not the template of the other rows
    "empty_completion",
    "not_a_summary",  # the completion is none that the serving parser would accept
    "control_token",  # content holds a token that steers the chat format
    "prefix",  # the chat template renders the prompt differently when an answer follows
    "stop_token",  # the supervised part does not end with the stop token
    "mask",  # the supervised part is not exactly the completion
    "too_long",
]


@dataclass(frozen=True)
class Problem:
    row: str
    reason: Reason
    detail: str

    def __str__(self) -> str:
        return f"{self.row}: {self.reason}: {self.detail}"


@dataclass
class Preflight:
    """What became of the rows: `pairs` in their order (only those without a problem) and all problems."""

    pairs: list[RenderedPair] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    @property
    def lengths(self) -> list[int]:
        return [len(pair.input_ids) for pair in self.pairs]

    def report(self) -> str:
        """The lengths of the good rows and, line by line, every problem of the bad ones."""
        lines = [str(problem) for problem in self.problems]
        counts = Counter(problem.reason for problem in self.problems)
        lines += [f"{count} x {reason}" for reason, count in counts.most_common()]
        if counts["too_long"]:
            lines.append("raise --max_length, or make shorter rows: `condensery import --max_row_tokens`")
        if self.pairs:
            ordered = sorted(self.lengths)
            num_supervised = sum(len(pair.completion_ids) for pair in self.pairs)
            lines.append(
                f"{len(self.pairs)} good rows, tokens a row: median {ordered[len(ordered) // 2]}, "
                f"longest {ordered[-1]}; {num_supervised / len(self.pairs):.0f} supervised"
            )
        return "\n".join(lines)


def check_rows(
    rows: Iterable[dict],
    tokenizer: PreTrainedTokenizerBase,
    max_length: int | None,
    enable_thinking: bool | None = None,
) -> Preflight:
    """Render every row as it will be trained and collect every problem."""
    result = Preflight()
    seen: set[str] = set()
    first_template: str | None = None
    for number, row in enumerate(rows, start=1):
        name = whole_characters(str(row.get("id", f"row {number}")))
        unreadable = _unreadable(row)
        if unreadable:
            result.problems.append(Problem(name, *unreadable))
            continue
        problems = _row_problems(row, tokenizer)
        if name in seen:
            problems.append(("duplicate_id", "stands in the data more than once"))
        seen.add(name)
        first_template = first_template or row["prompt_template"]
        if row["prompt_template"] != first_template:
            detail = f"{row['prompt_template']!r}, but the first row has {first_template!r}"
            problems.append(("prompt_template", detail))
        pair, found = _render(row, tokenizer, max_length, enable_thinking)
        problems += found
        result.problems += [Problem(name, reason, detail) for reason, detail in problems]
        if pair is not None and not problems:
            result.pairs.append(pair)
    return result


def _unreadable(row: dict) -> tuple[Reason, str] | None:
    """What makes a row not worth rendering."""
    prompt, completion = row.get("prompt"), row.get("completion")
    if not isinstance(row.get("prompt_template"), str):
        return "shape", "no prompt_template"
    if not isinstance(prompt, list) or not prompt or not isinstance(completion, list):
        return "shape", "prompt and completion must be lists of messages"
    turns = prompt + completion
    if not all(isinstance(turn, dict) and isinstance(turn.get("content"), str) for turn in turns):
        return "shape", "every message needs a text content"
    if not all(turn.get("role") in ROLES for turn in prompt):
        return "shape", f"the roles of a prompt are {', '.join(ROLES)}"
    if any(LONE_SURROGATE.search(turn["content"]) for turn in turns):
        return "shape", "a message holds half a character (a lone surrogate)"
    if [turn.get("role") for turn in completion] != ["assistant"]:
        return "shape", "the completion must be one assistant message"
    if not completion[0]["content"].strip():
        return "empty_completion", "nothing to learn"
    return None


def _row_problems(row: dict, tokenizer: PreTrainedTokenizerBase) -> list[tuple[Reason, str]]:
    problems: list[tuple[Reason, str]] = []
    failure = parse_summary(row["completion"][0]["content"]).failure
    if failure:
        problems.append(("not_a_summary", f"read as {failure}"))
    content = "\n".join(turn["content"] for turn in row["prompt"] + row["completion"])
    found = [token for token in control_tokens(tokenizer) if token in content]
    if found:
        problems.append(("control_token", f"content holds {', '.join(found)}; escape it"))
    return problems


def control_tokens(tokenizer: PreTrainedTokenizerBase) -> list[str]:
    """The texts that the tokenizer turns into special tokens wherever they stand, content included."""
    return [token.content for token in tokenizer.added_tokens_decoder.values() if token.special]


def _render(
    row: dict, tokenizer: PreTrainedTokenizerBase, max_length: int | None, enable_thinking: bool | None
) -> tuple[RenderedPair | None, list[tuple[Reason, str]]]:
    try:
        pair = render_pair(tokenizer, row["prompt"], row["completion"], enable_thinking)
    except PrefixError as error:
        return None, [("prefix", str(error))]
    except StopTokenError as error:
        return None, [("stop_token", str(error))]
    except jinja2.TemplateError as error:  # some templates raise on orders of roles they do not know
        return None, [("shape", f"the chat template refuses it: {error}")]
    problems: list[tuple[Reason, str]] = []
    thinking, learned = _split_thinking(supervised_text(tokenizer, pair))
    _, expected = _split_thinking(row["completion"][0]["content"].strip() + tokenizer.eos_token)
    if learned != expected:
        problems.append(("mask", f"supervised {(thinking + learned)[-80:]!r}, expected {expected[-80:]!r}"))
    if max_length is not None and len(pair.input_ids) > max_length:
        problems.append(("too_long", f"{len(pair.input_ids)} tokens, at most {max_length} (--max_length)"))
    return pair, problems


def _split_thinking(text: str) -> tuple[str, str]:
    """(a closed thinking block that the template or the teacher put first, the rest)."""
    head, closed, rest = text.rpartition("</think>")
    return head + closed, rest.lstrip("\n") if closed else rest
