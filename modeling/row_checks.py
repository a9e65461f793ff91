"""What can be wrong with a training row, found by rendering it as it will be trained.

A row that does not fit is never cut, dropped or repaired here: a target cut away trains on nothing and
"succeeds".
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from tqdm import tqdm
from transformers import PreTrainedTokenizerBase

from condensery.files.jsonl import BadLine
from condensery.message import LONE_SURROGATE
from condensery.summary import parse_summary
from condensery.thinking import Thinking
from modeling.chat_template import ChatTemplateError, RenderedPair, render_pair

THINK_TAG = re.compile(r"</?think>")
ROLES = ("system", "user", "assistant")
Reason = Literal[
    "unreadable",  # a line that is no JSON object in UTF-8
    "shape",  # not a prompt/completion row
    "orphaned_result",  # a tool's result without the call it answers
    "duplicate_id",
    "both_splits",  # a held-out row's question is trained on
    "prompt_template",  # not the template of the other rows
    "empty_completion",
    "not_a_summary",  # the completion is none that the serving parser would accept
    "control_token",  # content holds a token that steers the chat format
    "content",  # the chat template drops or changes a message
    "prefix",  # the chat template renders the prompt differently when an answer follows
    "stop_token",  # the chat template does not end a turn with the stop token
    "mask",  # the supervised part would not be exactly the completion
    "thinking",  # the chat template forces a thought that the setting does not write
    "no_reasoning",  # the setting keeps the teacher's reasoning, and the row has none
    "too_long",
]

MAX_LINES = 50  # the same fault in all rows of a file is one fault


@dataclass(frozen=True)
class Problem:
    """`place`: file and line."""

    place: str
    reason: Reason
    detail: str

    def __str__(self) -> str:
        return f"{self.place}: {self.reason}: {self.detail}"


@dataclass
class CheckedRows:
    """What became of the rows: rendered `pairs` by place (those without a problem), and all problems."""

    pairs: dict[str, RenderedPair] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def complaints(self) -> list[str]:
        """A line for each problem, up to MAX_LINES of a reason, then their number by reason."""
        counts: Counter[Reason] = Counter()
        lines = []
        for problem in self.problems:
            counts[problem.reason] += 1
            if counts[problem.reason] <= MAX_LINES:
                lines.append(str(problem))
        lines += [f"{count} x {reason}" for reason, count in counts.most_common()]
        if counts["too_long"]:
            lines.append("raise --max_length, or make shorter rows: `condensery import --max_row_tokens`")
        if counts["no_reasoning"]:
            lines.append("take --thinking none or empty, or pairs that carry their teacher's reasoning")
        return lines

    def summary(self) -> str:
        """How long the good rows are."""
        if not self.pairs:
            return "0 good rows"
        ordered = sorted(len(pair.input_ids) for pair in self.pairs.values())
        num_supervised = sum(len(pair.completion_ids) for pair in self.pairs.values())
        return (
            f"{len(ordered)} good rows, tokens a row: median {ordered[len(ordered) // 2]}, longest "
            f"{ordered[-1]}; {num_supervised / len(ordered):.0f} supervised"
        )


def check_rows(
    rows: Sequence[tuple[str, dict | BadLine]],
    tokenizer: PreTrainedTokenizerBase,
    max_length: int | None,
    thinking: Thinking = "none",
) -> CheckedRows:
    """Render every row as it will be trained and collect every problem. Rows come with their place."""
    result = CheckedRows()
    seen: dict[str, str] = {}
    usual = usual_template(rows)
    for place, row in tqdm(rows, desc="check rows", unit="row", disable=None):
        problems = _unreadable(row)
        if isinstance(row, dict) and not problems:
            problems = _row_problems(row, tokenizer)
            if (name := str(row.get("id") or place)) in seen:
                problems.append(("duplicate_id", f"{name!r} stands at {seen[name]}, too"))
            seen.setdefault(name, place)
            if row["prompt_template"] != usual:
                problems.append(("prompt_template", f"{row['prompt_template']!r}, most rows have {usual!r}"))
            pair, found = _render(row, tokenizer, max_length, thinking)
            problems += found
            if pair is not None and not problems:
                result.pairs[place] = pair
        result.problems += [Problem(place, reason, detail) for reason, detail in problems]
    return result


def usual_template(rows: Sequence[tuple[str, dict | BadLine]]) -> str | None:
    """The prompt template that most rows name."""
    names = [str(row.get("prompt_template")) for _, row in rows if isinstance(row, dict)]
    return Counter(names).most_common(1)[0][0] if names else None


def _unreadable(row: dict | BadLine) -> list[tuple[Reason, str]]:
    """What makes a row not worth rendering: nothing, or one problem."""
    if isinstance(row, BadLine):
        return [("unreadable", row.reason)]
    prompt, completion = row.get("prompt"), row.get("completion")
    if not isinstance(row.get("prompt_template"), str):
        return [("shape", "no prompt_template")]
    if not isinstance(prompt, list) or not prompt or not isinstance(completion, list):
        return [("shape", "prompt and completion must be lists of messages")]
    turns = prompt + completion
    if not all(isinstance(turn, dict) and isinstance(turn.get("content"), str) for turn in turns):
        return [("shape", "every message needs a text content")]
    if wrong := _wrong_role(prompt):
        return [wrong]
    if any(LONE_SURROGATE.search(turn["content"]) for turn in turns):
        return [("shape", "a message holds half a character (a lone surrogate)")]
    if [turn.get("role") for turn in completion] != ["assistant"]:
        return [("shape", "the completion must be one assistant message")]
    if wrong_thought := _wrong_thought(row.get("reasoning") or "", completion[0]["content"]):
        return [("shape", wrong_thought)]
    if not completion[0]["content"].strip():
        return [("empty_completion", "nothing to learn")]
    return []


def _wrong_thought(reasoning: object, answer: str) -> str | None:
    """A thought stands in a field of its own, and its tags are the chat template's."""
    if not isinstance(reasoning, str) or THINK_TAG.search(reasoning) or LONE_SURROGATE.search(reasoning):
        return "reasoning must be a text without <think>, </think> and halves of characters"
    if THINK_TAG.search(answer):
        return "the completion holds a thought; it belongs into the field reasoning"
    return None


def _wrong_role(prompt: list[dict]) -> tuple[Reason, str] | None:
    """A pair's prompt holds calls and results as text, so that every chat template renders them alike."""
    for number, turn in enumerate(prompt, start=1):
        role, answers = turn.get("role"), turn.get("tool_call_id")
        calls = repr([earlier.get("tool_calls") for earlier in prompt[: number - 1]])
        if role == "tool" and (not answers or repr(answers) not in calls):
            return "orphaned_result", f"message {number} answers a call that stands nowhere before it"
        if role not in ROLES:
            given = f"the role {role!r}" if role else "no role"
            return "shape", f"message {number} has {given}; those of a prompt are {', '.join(ROLES)}"
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
    except Exception as error:  # a template is a program; some raise on orders of roles they do not know
        return None, [("shape", f"the chat template refuses it: {error}")]
    if max_length is not None and len(pair.input_ids) > max_length:
        detail = f"{len(pair.input_ids)} tokens, at most {max_length} (--max_length)"
        return pair, [("too_long", detail)]
    return pair, []
