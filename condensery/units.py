"""Research units: the search-and-read episodes of a run, one for each sub-question.

A history compacted where a unit has closed says what was found; amid one it says what is being verified, and
a summary must carry that over. Both belong into a dataset (FACTS 3: trigger at research-unit boundaries).
"""

from typing import Literal

from condensery.files.jsonl import parse_json
from condensery.message import Message
from condensery.words import words_of


def unit_starts(messages: list[Message]) -> list[int]:
    """Positions of the assistant turns that open a unit, in order.

    A search opens one when at most half of its words were searched in the unit at work, or when that unit
    has read a page and the search is a new one. A last answer, which calls nothing, opens one, too. Turns
    before the first search belong to none.
    """
    starts: list[int] = []
    searched: set[str] = set()
    has_read = False
    for position, message in enumerate(messages):
        if message.role != "assistant":
            continue
        terms = _search_terms(message)
        is_new = len(terms & searched) * 2 <= len(terms) or (has_read and not terms <= searched)
        is_answer = not message.tool_calls and position == len(messages) - 1
        if (terms and is_new) or (starts and is_answer):
            starts.append(position)
            searched, has_read = set(), False
        searched |= terms
        has_read = has_read or any(call.function.name == "visit" for call in message.tool_calls)
    return starts


def unit_at(messages: list[Message], position: int) -> Literal["closed", "open"] | None:
    """Whether the unit at work before `position` was closed there; None where the run does not tell.

    Told by what the agent did next: on to another sub-question, or on with the same.
    """
    starts = unit_starts(messages)
    following = next((p for p in range(position, len(messages)) if messages[p].role == "assistant"), None)
    if following is None or not starts or starts[0] >= position:
        return None
    return "closed" if following in starts else "open"


def _search_terms(message: Message) -> set[str]:
    texts = [call.function.arguments for call in message.tool_calls if call.function.name == "search"]
    return {term for text in texts for term in words_of(_queries(text))}


def _queries(arguments: str) -> str:
    """The text of a search's queries; of arguments in another shape, all of it."""
    try:
        query = parse_json(arguments)["query"]
    except (ValueError, TypeError, KeyError):
        return arguments
    return " ".join(map(str, query)) if isinstance(query, list) else str(query)
