"""From a compaction and its accepted summary to one row in TRL's conversational prompt/completion shape.

The one builder: whatever trains on pairs reads what is written here. All content is text, call arguments too,
so that no table schema can invent keys.
"""

import re
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from condensery.compaction import Compaction
from condensery.facts import contains, split_sentences, values_in
from condensery.prompt import escape, load_template, render_history, render_prompt, unescape
from condensery.summary import parse_summary, wrap_summary
from condensery.tokens import Tokenizer, count_tokens
from condensery.trajectory import Cut, content_id
from data_synthesis.fitting import request_tokens
from data_synthesis.importers.task import language_of

Reason = Literal[
    "summary_failed",  # the summarizer gave nothing acceptable
    "empty_history",  # nothing to summarize
    "not_a_summary",  # no parser would accept it as a target
    "no_gain",  # not shorter than what it replaces
    "other_language",  # not in the language of the task
    "unsupported",  # more of its statements than tolerated stand nowhere in the history
    "duplicate",  # the same prompt and completion stand in the data already
    "verdict",  # of the rollout: not what was asked for
    "low_gain",  # shorter than its history, but by less than asked for
    "language",  # none of those asked for
    "not_hard",  # the summary did not fail where the full history succeeded
    "not_best",  # another summary of the same history is better
    "near_duplicate",  # an earlier pair says nearly the same
    "contaminated",  # its question stands in an evaluation set
]
CJK_LANGUAGES = ("zh", "ja", "ko")
NAMES = re.compile(r"https?://\S+|\[[^\[\]]*\]")  # sources are no language


class Turn(BaseModel):
    model_config = ConfigDict(extra="forbid")
    role: Literal["user", "assistant"]
    content: str


class Pair(BaseModel):
    """A training row. `prompt_template` is a name; its text stands once beside the rows. `reasoning` is the
    teacher's, for `condensery sft --thinking keep`. `hard`: the run failed where one with full history
    succeeded; None where that was not compared."""

    model_config = ConfigDict(extra="forbid")
    id: str
    compaction_id: str
    trajectory_id: str
    question_id: str
    index: int
    language: str
    prompt: list[Turn]
    completion: list[Turn]
    reasoning: str = ""
    prompt_template: str
    author: str
    prompt_tokens: int
    completion_tokens: int
    history_tokens: int
    num_statements: int
    num_unsupported: int
    unit: Literal["closed", "open"] | None = None
    hard: bool | None = None


@dataclass(frozen=True)
class Dropped:
    """A compaction that makes no pair, and why."""

    compaction_id: str
    trajectory_id: str
    reason: Reason
    detail: str


def build_pair(
    compaction: Compaction, cut: Cut, template: str, tokenizer: Tokenizer | None
) -> Pair | Dropped:
    """The row for an accepted summary, or the reason why there is none."""
    if cut.summary is None:
        return drop(compaction, "summary_failed", cut.failure or "no summary")
    if not any(message.content or message.tool_calls for message in compaction.expired):
        return drop(compaction, "empty_history", f"{len(compaction.expired)} messages without text")
    text = text_of(compaction, cut, template)
    completion = text["completion"][0]["content"]
    parsed = parse_summary(completion)
    if parsed.text is None:
        return drop(compaction, "not_a_summary", f"read as {parsed.failure}")
    history = render_history(compaction.expired) + (compaction.last_summary or "")
    num_history, num_summary = count_tokens(history, tokenizer), count_tokens(parsed.text, tokenizer)
    if num_summary >= num_history:
        return drop(compaction, "no_gain", f"{num_summary} tokens for a history of {num_history}")
    # By script only: English names in a Chinese summary are no reason to drop it.
    written_in = language_of(NAMES.sub("", parsed.text))
    if (written_in in CJK_LANGUAGES) != (compaction.language in CJK_LANGUAGES):
        return drop(compaction, "other_language", f"{written_in}, the task is in {compaction.language}")
    num_unsupported, num_statements = provenance(cut.summary, unescape(history) + compaction.task)
    return Pair(
        id=content_id({"prompt": text["prompt"], "completion": completion}),
        compaction_id=compaction.id,
        trajectory_id=compaction.trajectory_id,
        question_id=compaction.question_id,
        index=compaction.index,
        language=compaction.language,
        **text,
        prompt_template=load_template(template)[0],
        author=cut.author,
        prompt_tokens=request_tokens(compaction, template, tokenizer),
        completion_tokens=count_tokens(completion, tokenizer),
        history_tokens=num_history,
        num_statements=num_statements,
        num_unsupported=num_unsupported,
        unit=compaction.unit,
    )


def text_of(compaction: Compaction, cut: Cut, template: str) -> dict[str, Any]:
    """The fields of a row that are long; `without_text` has the others."""
    assert cut.summary is not None
    return {
        "prompt": render_prompt(compaction, template),
        "completion": [{"role": "assistant", "content": wrap_summary(escape(cut.summary))}],
        "reasoning": escape(cut.reasoning.replace("</think>", "")),
    }


def without_text(pair: Pair) -> Pair:
    """What is small in a row, to be kept for all rows at once: about 1 kB, whatever the history's length."""
    # Constructed, since pydantic's set of the fields that were given takes 2 kB a row.
    return Pair.model_construct(set(), **dict(pair) | {"prompt": [], "completion": [], "reasoning": ""})


def drop(compaction: Compaction, reason: Reason, detail: str) -> Dropped:
    return Dropped(compaction.id, compaction.trajectory_id, reason, detail)


def provenance(summary: str, history: str) -> tuple[int, int]:
    """(statements with a value that stands nowhere in the history, statements with a value)."""
    checked = [values for statement in split_sentences(summary) if (values := values_in(statement))]
    bad = sum(any(not contains(history, value) for value in values) for values in checked)
    return bad, len(checked)
