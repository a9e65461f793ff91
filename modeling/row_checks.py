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
from condensery.thinking import Thinking
from modeling.chat_template import ChatTemplateError, RenderedPair, render_pair

ROLES = ("system", "user", "assistant")
Reason = Literal[
    "shape",  # not a prompt/completion row
    "duplicate_id",
    "prompt_template",  # not the template of the other rows
    "empty_completion",
    "not_a_summary",  # the completion is none that the serving parser would accept
    "control_token",  # content holds a token that steers the chat format
    "prefix",  # the chat template renders the prompt differently when an answer follows
    "stop_token",  # the chat template does not end a turn with the stop token
    "mask",  # the supervised part would not be exactly the completion
    "thinking",  # the chat template forces a thought that the setting does not write
    "no_reasoning",  # the setting keeps the teacher's reasoning, and the row has none
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
    thinking: Thinking = "none",
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
        pair, found = _render(row, tokenizer, max_length, thinking)
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
    if not isinstance(row.get("reasoning") or "", str) or "</think>" in (row.get("reasoning") or ""):
        return "shape", "reasoning must be a text without </think>"
    if not completion[0]["content"].strip():
        return "empty_completion", "nothing to learn"
    return None


def _row_problems(row: dict, tokenizer: PreTrainedTokenizerBase) -> list[tuple[Reason, str]]:
    problems: list[tuple[Reason, str]] = []
    failure = parse_summary(row["completion"][0]["content"]).failure
    if failure:
        problems.append(("not_a_summary", f"read as {failure}"))
    texts = [turn["content"] for turn in row["prompt"] + row["completion"]]
    content = "\n".join([*texts, row.get("reasoning") or ""])
    found = [token for token in control_tokens(tokenizer) if token in content]
    if found:
        problems.append(("control_token", f"content holds {', '.join(found)}; escape it"))
    return problems


def control_tokens(tokenizer: PreTrainedTokenizerBase) -> list[str]:
    """The texts that the tokenizer turns into special tokens wherever they stand, content included."""
    return [token.content for token in tokenizer.added_tokens_decoder.values() if token.special]


def _render(
    row: dict, tokenizer: PreTrainedTokenizerBase, max_length: int | None, thinking: Thinking
) -> tuple[RenderedPair | None, list[tuple[Reason, str]]]:
    reasoning = row.get("reasoning") or ""
    if thinking == "keep" and not reasoning.strip():
        return None, [
            ("no_reasoning", "--thinking keep trains on the teacher's reasoning; this row has none")
        ]
    try:
        pair = render_pair(tokenizer, row["prompt"], row["completion"], thinking, reasoning)
    except ChatTemplateError as error:
        return None, [(error.reason, str(error))]
    except jinja2.TemplateError as error:  # some templates raise on orders of roles they do not know
        return None, [("shape", f"the chat template refuses it: {error}")]
    if max_length is not None and len(pair.input_ids) > max_length:
        detail = f"{len(pair.input_ids)} tokens, at most {max_length} (--max_length)"
        return pair, [("too_long", detail)]
    return pair, []
