"""Damaged summaries, from an honest one and the known facts: to audit rewards, or to train on.

Faults of summaries that look faithful (FACTS 3) change one statement and leave every other character alone;
the gamed ones (`reconstruct/gamed.py`) change the whole. A kind that cannot be made of a summary gives None:
nothing was updated, nothing is open, no constraint was set.

Each kind at least 100 times, in a minute without a model:

    condensery web --output_dir runs/web --num_questions 1500 --num_entities 1500 --level 3 \\
        --adversarial 0.3 --updates 0.5
    condensery record --questions runs/web --output_dir runs/record --window_tokens 700 --reserve_tokens 0 \\
        --search_results 2
"""

import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, get_args

from condensery.compaction import Compaction
from condensery.facts import NAME, Fact, contains
from condensery.prompt import history_text
from reconstruct import gamed
from reconstruct.case import Case, swap, swap_value

Kind = Literal[
    # One statement is changed, every other character stays (FACTS 3):
    "versions_merged",  # two values of one attribute, old and new, in one statement
    "candidate_as_fact",  # one side of a conflict, or a doubted claim, stated as established
    "source_dropped",
    "gap_closed",  # what is open is answered with a wrong value, or no longer open
    "failed_path_deleted",
    "boundary_changed",  # a year or a name in the user's constraint
    "old_value_kept",  # after an update the outdated value, with its year and source
    # The whole summary plays for the reward:
    "empty",
    "copy",  # of the history, from its beginning, up to the budget
    "repetition",  # one statement again and again
    "padding",  # the honest summary and as much again that says nothing
    "names_only",  # everybody that the history knows, and nothing about them
    "wrong_facts",  # every value is that of somebody else, or a near number
    "vague",  # every value left out
]
SOURCE = re.compile(r"\[([\w.:/-]+)\] ?")
OPEN = re.compile(r"\W*(?:still )?(?:open|待查)[:：]\s*", re.IGNORECASE)
TRIED = re.compile(r"\W*(?:tried|已搜索|已尝试)[^:：]*[:：]", re.IGNORECASE)
YEAR = re.compile(r"(?<!\d)(?:1[5-9]|20)\d\d(?!\d)")


def damage(
    kind: Kind,
    compaction: Compaction,
    honest: str,
    rng: random.Random,
    max_tokens: int = 256,
    elsewhere: Mapping[str, Sequence[str]] | None = None,
) -> str | None:
    """The summary damaged in this kind; None where that cannot be. The same dice give the same damage.

    `max_tokens` is the budget of a summary, which a copy fills. `elsewhere` has values by attribute, taken
    for wrong ones where the history itself has no other.
    """
    case = Case(compaction, honest.splitlines(), rng, max_tokens, elsewhere or {})
    damaged = MAKERS[kind](case)
    return None if damaged == "\n".join(case.lines) else damaged


def merge_versions(case: Case) -> str | None:
    found = list(_versions(case))
    if not found:
        return None
    number, fact, other = case.rng.choice(found)
    old, new = sorted([fact, other], key=lambda version: version.condition or "")
    merged = case.forms["range"].format(old=old.value, new=new.value)
    return case.with_line(number, swap_value(case.lines[number], fact, merged))


def keep_old_value(case: Case) -> str | None:
    found = [each for each in _versions(case) if (each[2].condition or "") < (each[1].condition or "")]
    if not found:
        return None
    number, fact, old = case.rng.choice(found)
    line = swap_value(case.lines[number], fact, old.value)
    if line == case.lines[number]:
        return None
    line = SOURCE.sub(f"[{old.source}] ", line, count=1)
    return case.with_line(number, swap(line, fact.condition or "", old.condition or ""))


def _versions(case: Case) -> Iterator[tuple[int, Fact, Fact]]:
    """(line, the dated fact that it states, another dated value of the same that it does not state)."""
    for number, fact in case.stated():
        for other in case.claims_beside(fact):
            is_version = fact.condition and other.condition and fact.condition != other.condition
            if is_version and not other.stands_in(case.lines[number]):
                yield number, fact, other


def settle_candidate(case: Case) -> str | None:
    """Of a conflict one side stays, as a fact; else a claim against a fact is stated beside it."""
    stated = case.stated()
    in_conflict = [
        (number, fact, other)
        for number, fact in stated
        for other in case.claims_beside(fact)
        if other.must_keep and other.stands_in(case.lines[number])
    ]
    if in_conflict:
        conflict, _, dropped = case.rng.choice(in_conflict)
        gone = {conflict} | {number for number, fact in stated if fact == dropped}
        return "\n".join(line for number, line in enumerate(case.lines) if number not in gone)
    doubted = [
        (number, other)
        for number, fact in stated
        for other in case.claims_beside(fact)
        if not other.condition and not other.stands_in("\n".join(case.lines))
    ]
    if not doubted:
        return None
    number, other = case.rng.choice(doubted)
    claim = case.forms["claim"].format(**other.model_dump())
    return case.with_line(number, case.lines[number], claim)


def drop_source(case: Case) -> str | None:
    numbers = sorted({number for number, _ in case.stated() if SOURCE.search(case.lines[number])})
    return _rewrite_one(case, numbers, lambda line: SOURCE.sub("", line, count=1))


def close_gap(case: Case) -> str | None:
    """The open point gets the value that somebody else has for the attribute; without one, it goes."""
    numbers = [number for number, line in enumerate(case.lines) if OPEN.match(line)]
    if not numbers:
        return None
    number = case.rng.choice(numbers)
    item = OPEN.sub("", case.lines[number], count=1)
    here = [fact.value for fact in case.facts if contains(item, fact.attribute)]
    others = [value for name, values in case.elsewhere.items() if contains(item, name) for value in values]
    answer = [f"- {item}: {case.rng.choice(here or others)}"] if here or others else []
    return case.with_line(number, *answer)


def delete_failed_path(case: Case) -> str | None:
    numbers = [number for number, line in enumerate(case.lines) if TRIED.match(line)]
    return case.with_line(case.rng.choice(numbers)) if numbers else None


def change_boundary(case: Case) -> str | None:
    constraints = [line.removeprefix("- ") for line in case.compaction.task.splitlines()[1:]]
    numbers = [
        number for number, line in enumerate(case.lines) if any(text in line for text in constraints if text)
    ]
    return _rewrite_one(case, numbers, lambda line: _other_boundary(case, line))


def _other_boundary(case: Case, line: str) -> str:
    """Another year; else another name, of somebody who is not asked about: a site instead of a site."""
    if year := YEAR.search(line):
        other = int(year[0]) + case.rng.choice([-1, 1]) * case.rng.randint(2, 9)
        return line[: year.start()] + str(other) + line[year.end() :]
    names = NAME.findall(line)
    asked = {text for fact in case.facts for text in (fact.subject, fact.value)}
    others = [
        name
        for name in dict.fromkeys(NAME.findall(history_text(case.compaction)))
        if not contains(case.compaction.task, name) and not any(contains(name, text) for text in asked)
    ]
    return line.replace(names[0], case.rng.choice(others)) if names and others else line


def _rewrite_one(case: Case, numbers: list[int], rewrite: Callable[[str], str]) -> str | None:
    """One of these lines is rewritten; None if there is none."""
    if not numbers:
        return None
    number = case.rng.choice(numbers)
    return case.with_line(number, rewrite(case.lines[number]))


MAKERS: dict[Kind, Callable[[Case], str | None]] = {
    "versions_merged": merge_versions,
    "candidate_as_fact": settle_candidate,
    "source_dropped": drop_source,
    "gap_closed": close_gap,
    "failed_path_deleted": delete_failed_path,
    "boundary_changed": change_boundary,
    "old_value_kept": keep_old_value,
    "empty": gamed.say_nothing,
    "copy": gamed.copy_history,
    "repetition": gamed.repeat_one_fact,
    "padding": gamed.pad,
    "names_only": gamed.name_all,
    "wrong_facts": gamed.invent_values,
    "vague": gamed.leave_out_values,
}
KINDS: tuple[Kind, ...] = get_args(Kind)
