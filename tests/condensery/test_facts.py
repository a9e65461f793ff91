"""Facts in text without a model: what counts as kept, and what is stated without ground."""

import pytest

from condensery.facts import (
    Fact,
    contains,
    num_distractors,
    recall,
    split_sentences,
    unsupported,
    values_in,
)

POPULATION = Fact(subject="Harrow Bay", attribute="population", value="44120", aliases=["44 thousand"])
HISTORY = """\
[p1] Harrow Bay: Harrow Bay had 44,120 inhabitants in 1901. The mill of Kessel Hill was built in 1843.
[p2] On 3 May 1921 Ann Frost wrote "the water is gone" about Kessel Hill.
See https://a.org/x?id=1 and /var/log/mill.txt."""


@pytest.mark.parametrize(
    ("text", "value", "is_in"),
    [
        ("built in 1843.", "1843", True),
        ("built in 18430", "1843", False),
        ("about 1,843 people", "1843", True),
        ("about 21,843 people", "1843", False),
        ("3.5 km", "3", False),
        ("13.5 km", "3.5", False),
        ("3.5 km", "3.5", True),
        ("on 3 May 1921", "1921-05-03", True),
        ("on May 3rd, 1921", "3 May 1921", True),
        ("1921年5月3日", "1921-05-03", True),
        ("1921/5/3", "May 3, 1921", True),
        ("on 13 May 1921", "3 May 1921", False),
        ("in May 1921", "1921", True),
        ("Annex", "Ann", False),
        ("Ann’s mill", "Ann", True),
        ("磨坊建于1843年", "1843", True),
        ("哈罗湾的人口是四万", "哈罗湾", True),
        ("１８４３年", "1843", True),  # full-width digits
        ("HARROW BAY", "Harrow Bay", True),
        ("$1,200.50", "1200.50", True),
        ("a (b) [c]", "(b)", True),
    ],
)
def test_contains_a_value_as_a_whole(text: str, value: str, is_in: bool) -> None:
    assert contains(text, value) is is_in


@pytest.mark.parametrize(
    ("text", "stands"),
    [
        ("Harrow Bay: 44,120 people [p1]", True),
        ("Harrow Bay has 44 thousand people", True),
        ("Harrow Bay is a town. Kessel Hill has 44,120 people.", False),
        ("Harrow Bay is a town.\n44,120 people", False),
        ("Harrow Bay has 44,210 people", False),
        ("44,120 people live in Harrow Bay, v. 3.2 of the count says", True),
    ],
)
def test_a_fact_stands_with_its_subject_in_one_line_or_sentence(text: str, stands: bool) -> None:
    assert POPULATION.stands_in(text) is stands


def test_a_name_with_an_abbreviation_is_one_sentence() -> None:
    fact = Fact(subject="St. Mary Mill", attribute="built", value="1843")
    assert fact.stands_in("The St. Mary Mill was built in 1843. It stands.")
    assert Fact(subject="J. Frost", attribute="born", value="1790").stands_in("J. Frost was born in 1790.")
    assert split_sentences("It was Dr. Holt. He left. 很好。对") == [
        "It was Dr. Holt.",
        "He left.",
        "很好。",
        "对",
    ]


def test_recall_and_distractors_are_counted_apart() -> None:
    facts = [POPULATION, Fact(subject="Kessel Hill", attribute="mill", value="1843", must_keep=False)]
    assert recall("Harrow Bay: 44120", facts) == (1, 1)
    assert recall("nothing", facts) == (0, 1)
    assert num_distractors("Kessel Hill: mill of 1843", facts) == 1
    assert recall("x", []) == (0, 0)


@pytest.mark.parametrize(
    ("summary", "counts"),
    [
        ("Harrow Bay had 44120 inhabitants in 1901.", (0, 1)),
        ("Harrow Bay had 44,210 inhabitants.", (1, 1)),
        ("Kessel Hill had 44,120 inhabitants.", (1, 1)),  # the value stands, with another subject
        ("Still open: who built it.", (0, 0)),
        ("Ann Frost wrote on May 3, 1921.\nThe mill was built in 1844.", (1, 2)),
        ('She wrote "the water is gone".', (0, 1)),
        ('She wrote "the water is back".', (1, 1)),
        ("See https://a.org/x?id=1 and /var/log/mill.txt", (0, 1)),
        ("See https://a.org/x?id=2", (1, 1)),
        ("Nigel Thorne built it.", (1, 1)),
    ],
)
def test_a_statement_without_ground_is_counted(summary: str, counts: tuple[int, int]) -> None:
    assert unsupported(summary, HISTORY, subjects=["Harrow Bay", "Kessel Hill"]) == counts


def test_values_are_what_is_right_or_wrong_to_the_letter() -> None:
    found = values_in('On 3 May 1921 user_id 7 of fooBar read "all of it" in src/main.py')
    for value in ("1921-05-03", "7", "user_id", "fooBar", "all of it", "src/main.py"):
        assert value in found


BLOBS = [
    "-",
    ".",
    "1",
    "a-",
    "a.",
    "a_",
    "Aa",
    "a/",
    "年",
    "[",
    "Aa ",
    '"',
    "“",
    "“aaa",
    "A'",
    "A-",
    "Aa of ",
]


@pytest.mark.parametrize("piece", BLOBS)
def test_a_blob_of_any_kind_is_read_in_one_pass(piece: str) -> None:
    """A pattern that starts anew at every character would hang here for minutes."""
    values_in(piece * 200_000)


def test_equal_values_of_a_statement_are_looked_for_once() -> None:
    history = "\n".join(f"Row {number} says nothing." for number in range(500))
    assert unsupported("999 " * 100_000, history, subjects=["Harrow Bay"]) == (1, 1)
