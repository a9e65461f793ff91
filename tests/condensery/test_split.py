"""A split by question cannot leak, is the same in any order, and says when it cannot be made."""

import random

import pytest

from condensery.split import group_questions, held_out_questions

REPORT = """TimeDelta serialization rounds milliseconds down where it should round to the nearest value.
I use a field with precision in milliseconds, serialize a delta of 345 of them, and get 344 back. It worked in
the version before the last one; the cause seems to be a division of floats in the base unit."""


def test_equal_and_nearly_equal_tasks_stay_together() -> None:
    tasks = {
        "a": REPORT,
        "b": REPORT.upper() + "!",
        "c": REPORT + " Please fix.",
        "d": "Where was the architect of the north bridge born?",
        "e": "Where was the architect of the south bridge born?",
        "f": "北桥的设计者出生在哪里？",
        "g": "北桥的设计者 出生在哪里",
    }
    groups = sorted(sorted(group) for group in group_questions(tasks))
    assert groups == [["a", "b", "c"], ["d"], ["e"], ["f", "g"]]


def test_the_share_and_the_count_are_of_groups_and_the_order_does_not_matter() -> None:
    tasks = {f"q{number}": f"What did expedition number {number} find there?" for number in range(40)}
    assert len(held_out_questions(tasks, 0.25, seed=0)) == 10
    assert len(held_out_questions(tasks, 15, seed=0)) == 15
    assert held_out_questions(tasks, 0, seed=0) == set()
    shuffled = list(tasks.items())
    random.Random(1).shuffle(shuffled)
    assert held_out_questions(dict(shuffled), 0.25, 0) == held_out_questions(tasks, 0.25, 0)
    assert held_out_questions(tasks, 0.25, 1) != held_out_questions(tasks, 0.25, 0)


@pytest.mark.parametrize("held_out", [3, 5, 0.9])
def test_both_sides_need_a_question(held_out: float) -> None:
    tasks = {f"q{number}": f"What is {number}?" for number in range(3)}
    with pytest.raises(ValueError, match="of 3 questions; both sides need at least one"):
        held_out_questions(tasks, held_out, seed=0)


def test_one_question_under_many_ids_is_one_group() -> None:
    """Compared with each other they would be millions of pairs."""
    tasks = {f"q{number}": "How long is the north bridge of Aldermoor?" for number in range(20_000)}
    assert group_questions(tasks | {"other": "Who founded the mill?"}) == [set(tasks), {"other"}]
