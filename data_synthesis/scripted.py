"""An explorer and a teacher that need no model: over an offline web they know the truth.

The explorer looks at what it can see, as a model would: a fact that the summary lost is searched again. So
a bad summarizer costs calls here, too. The teacher writes what a faithful summarizer would: the facts that
the task needs and that stand in the history, conflicts, the user's constraints, and what is open.
"""

import json
import random
import re

from condensery.compaction import Compaction
from condensery.context import MEMORY
from condensery.endpoint import Reply
from condensery.facts import Fact, contains, split_sentences
from condensery.message import FunctionCall, Message, ToolCall
from condensery.summary import wrap_summary
from data_synthesis.question import Question
from data_synthesis.rollout import LAST_CALL
from data_synthesis.web_vocabulary import load_vocabulary

RESULT = re.compile(r"\[(p\d+)\] [^:：]*[:：]\s*")  # the head of a search result, before its sentences
MAX_OPEN = 1


async def scripted_explorer(question: Question, messages: list[Message]) -> Reply:
    """The next turn: search for the first fact not visible, visit its page if that failed, else answer.

    Asked for its last turn, it answers with what it sees last of the facts on the way.
    """
    forms = load_vocabulary(question.language)
    visible = "\n".join(message.content for message in messages)
    if messages[-1].content == LAST_CALL:
        seen = [fact.value for fact in question.facts or [] if fact.stands_in(visible)] or ["?"]
        has_all = len(seen) == len(question.facts or [])
        text = forms["answer"].format(v=question.answer if has_all else seen[-1])
        return Reply(message=Message(role="assistant", content=text))
    calls = "\n".join(call.function.arguments for message in messages for call in message.tool_calls)
    # Seeded by what is seen, so that a run that is made again says the same.
    rng = random.Random(f"{question.id} {len(visible)}")
    for fact in question.facts or []:
        if fact.stands_in(visible):
            continue
        query = query_for(fact)
        page = f"{fact.source}"
        # In the visible text, too: a summary that names the query as tried keeps it from being typed again.
        if query not in calls and query not in visible:
            known = contains(question.question, fact.subject) or contains(visible, fact.subject)
            thought = rng.choice(forms["thoughts" if known else "identify"])
            return _turn(
                thought.format(s=fact.subject, a=fact.attribute), "search", {"query": [query]}, messages
            )
        if page not in calls:
            thought = forms["visit"].format(page=page, s=fact.subject, a=fact.attribute)
            return _turn(thought, "visit", {"url": [page], "goal": query}, messages)
    text = forms["answer"].format(v=question.answer)
    return Reply(message=Message(role="assistant", content=text))


def _turn(thought: str, tool: str, arguments: dict, messages: list[Message]) -> Reply:
    call = ToolCall(
        id=f"call_{len(messages)}",
        function=FunctionCall(name=tool, arguments=json.dumps(arguments, ensure_ascii=False)),
    )
    return Reply(
        message=Message(role="assistant", content=thought, tool_calls=[call]), finish_reason="tool_calls"
    )


async def memorizing_explorer(question: Question, messages: list[Message]) -> Reply:
    """The same under MEM1: each turn opens with a memory of what is seen, in the teacher's words."""
    reply = await scripted_explorer(question, messages)
    memories = [found[1] for message in messages if (found := MEMORY.search(message.content))]
    seen = Compaction(
        id="", trajectory_id="", question_id=question.id, index=0, task=question.question,
        expired=messages, last_summary=memories[-1] if memories else None,
    )  # fmt: skip
    memory = f"<memory>\n{oracle_summary(question, seen)}\n</memory>\n"
    reply.message.content = memory + reply.message.content
    return reply


class OracleTeacher:
    """Writes the summary of a compaction from the truth about its question."""

    def __init__(self, questions: list[Question]) -> None:
        self.questions = {question.id: question for question in questions}

    async def __call__(self, compaction: Compaction) -> Reply:
        text = oracle_summary(self.questions[compaction.question_id], compaction)
        return Reply(message=Message(role="assistant", content=wrap_summary(text)))


def oracle_summary(question: Question, compaction: Compaction) -> str:
    """Slots: constraints, facts with sources, conflicts, what is open or failed; empty ones are left out."""
    forms = load_vocabulary(question.language)["summary"]
    history = "\n".join([compaction.last_summary or "", *(m.content for m in compaction.expired)])
    facts = question.facts or []
    found = [fact for fact in facts if fact.stands_in(history)]
    lines = [forms["constraint"].format(c=constraint) for constraint in question.constraints]
    lines += [_fact_line(fact, forms, history) for fact in found]
    lines += [
        forms["conflict"].format(a=first.attribute, s=first.subject, v=first.value, w=second.value)
        for first, second in zip(found, found[1:])
        if (first.subject, first.attribute) == (second.subject, second.attribute)
    ]
    known = [
        fact for fact in facts if fact not in found and contains(history + compaction.task, fact.subject)
    ]
    items = [forms["open_item"].format(s=fact.subject, a=fact.attribute) for fact in known[:MAX_OPEN]]
    lines += [forms["open"].format(list=", ".join(items))] if items else []
    tried = [query_for(fact) for fact in known[:MAX_OPEN] if query_for(fact) in searches_in(compaction)]
    lines += [forms["tried"].format(query=query) for query in tried]
    return "\n".join(lines) or forms["nothing"]


def query_for(fact: Fact) -> str:
    """What the explorer types to find a fact. Named in a summary as tried, it is not typed again."""
    return f"{fact.subject} {fact.attribute}"


def searches_in(compaction: Compaction) -> str:
    """All that was searched so far: the calls in the history, and what the last summary says was tried."""
    calls = [call.function.arguments for message in compaction.expired for call in message.tool_calls]
    return "\n".join([*calls, compaction.last_summary or ""])


def _fact_line(fact: Fact, forms: dict[str, str], history: str) -> str:
    """The sentence that states the fact, to the letter, behind the id of the page the agent read it on.

    Facts carried over from the last summary keep the line that they have there.
    """
    holding = None
    for line in (line for line in history.splitlines() if fact.stands_in(line)):
        row = RESULT.match(line)
        if row is None:
            return line
        stated = next((unit for unit in split_sentences(line[row.end() :]) if fact.stands_in(unit)), None)
        if stated:
            return forms["fact"].format(source=row[1], sentence=stated)
        holding = holding or line
    # A page's title and year happen to be subject and value: to whoever checks the text, that is the fact.
    assert holding is not None
    return next(unit for unit in split_sentences(holding) if fact.stands_in(unit))
