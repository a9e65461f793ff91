"""Each kind of damage changes what it names and nothing else, and says when it cannot be done."""

import random

import pytest

from condensery.compaction import Compaction
from condensery.facts import recall
from condensery.summary import parse_summary, wrap_summary
from reconstruct.damage import KINDS, damage
from reconstruct.gamed import first_tokens
from tests.reconstruct.known_histories import FACTS, HONEST, HONEST_ZH, chinese, compaction, fact

# kind -> {line of the honest summary: what may stand there instead}
CHANGED_LINES = {
    "versions_merged": {1: ["- [p101] In 2018, Amber Bay had 11,002 to 12,345 inhabitants."]},
    "candidate_as_fact": {
        2: ["- [p103] The mayor of Amber Bay is Alden Marsh.\n- [p104] The mayor of Amber Bay is Berta Holt."]
    },
    "source_dropped": {
        1: ["- In 2018, Amber Bay had 12,345 inhabitants."],
        2: ["- The mayor of Amber Bay is Alden Marsh."],
    },
    "gap_closed": {3: ["- elevation of Amber Bay: 321 m"]},
    "failed_path_deleted": {4: [""]},
    "boundary_changed": {
        0: [f"Keep: Use only figures from {2015 + by} or later." for by in range(-9, 10) if abs(by) > 1]
    },
    "old_value_kept": {1: ["- [p102] In 2003, Amber Bay had 11,002 inhabitants."]},
}


def made(kind: str, of: Compaction | None = None, honest: str = HONEST, seed: int = 0) -> str | None:
    return damage(kind, of or compaction(), honest, random.Random(seed), max_tokens=60)


@pytest.mark.parametrize("kind", CHANGED_LINES)
@pytest.mark.parametrize("seed", range(4))
def test_one_statement_changes(kind: str, seed: int) -> None:
    lines = HONEST.splitlines()
    possible = {
        "\n".join(filter(None, [*lines[:number], instead, *lines[number + 1 :]]))
        for number, choices in CHANGED_LINES[kind].items()
        for instead in choices
    }
    assert made(kind, seed=seed) in possible


def test_the_same_seed_gives_the_same_damage() -> None:
    for kind in KINDS:
        assert made(kind, seed=5) == made(kind, seed=5)
    assert len({made("padding", seed=seed) for seed in range(5)}) > 1


def test_gamed_summaries() -> None:
    lines = HONEST.splitlines()
    assert made("empty") == ""
    assert parse_summary(wrap_summary(made("empty") or "")).failure
    copied = made("copy") or ""
    assert copied.startswith("[assistant] Next: the elevation of Amber Bay.") and len(copied) == 180
    repeated = (made("repetition") or "").splitlines()
    assert len(repeated) == 8 and set(repeated) <= set(lines[1:3]) and len(set(repeated)) == 1
    padded = made("padding") or ""
    assert padded.startswith(HONEST) and 2 * len(HONEST) <= len(padded) < 2.3 * len(HONEST)
    assert recall(padded, FACTS) == recall(HONEST, FACTS)
    names = (made("names_only") or "").splitlines()
    expected = ["Amber Bay", "Alden Marsh", "Berta Holt", "Linden Ford", "Caspar Fenn"]
    assert names == [f"- {name}" for name in expected]
    assert recall("\n".join(names), FACTS) == (0, 2)


def test_wrong_and_vague_differ_only_in_what_they_say_of_facts() -> None:
    lines = HONEST.splitlines()
    assert (made("wrong_facts") or "").splitlines() == [
        lines[0],
        "- [p101] In 2018, Amber Bay had 54,321 inhabitants.",
        "- [p103] The mayor of Amber Bay is Caspar Fenn.",
        *lines[3:],
    ]
    assert (made("vague") or "").splitlines() == [
        lines[0],
        "- Something was found on the population of Amber Bay.",
        "- Something was found on the mayor of Amber Bay.",
        *lines[3:],
    ]


def test_chinese() -> None:
    possible = {kind: made(kind, chinese(), HONEST_ZH) for kind in KINDS}
    assert [kind for kind, text in possible.items() if text is None] == ["candidate_as_fact"]
    assert "2018年琥珀镇有11002人至12345人。" in (possible["versions_merged"] or "")
    assert "- [p102] 2003年琥珀镇有11002人。" in (possible["old_value_kept"] or "")
    assert "琥珀镇的海拔: 321米" in (possible["gap_closed"] or "")
    assert "2018年琥珀镇有54321人。" in (possible["wrong_facts"] or "")
    assert "琥珀镇的镇长是王芳。" in (possible["wrong_facts"] or "")
    assert len(first_tokens("琥珀" * 100, 60)) == 60


def test_a_conflict_becomes_one_fact() -> None:
    facts = [
        fact("Amber Bay | elevation | 321 m | p101 |", must_keep=True),
        fact("Amber Bay | elevation | 312 m | p102 |", must_keep=True),
    ]
    lines = [
        "- [p101] Amber Bay lies 321 m above sea level.",
        "- [p102] Amber Bay lies 312 m above sea level.",
        "Conflict: elevation of Amber Bay is 321 m or 312 m",
    ]
    of = compaction(facts=facts)
    assert {made("candidate_as_fact", of, "\n".join(lines), seed) for seed in range(9)} == set(lines[:2])
    wrong = (made("wrong_facts", of, "\n".join(lines)) or "").splitlines()
    assert "321" not in wrong[0] and "312" not in wrong[1]
    first, second = (line.split("lies ")[1].split(" above")[0] for line in wrong[:2])
    assert wrong[2] == f"Conflict: elevation of Amber Bay is {first} or {second}"


def test_a_name_in_a_constraint_becomes_another_name() -> None:
    task = "Collect for Amber Bay: mayor.\n- Do not use Valley Post as a source."
    of = compaction(task=task)
    honest = "Keep: Do not use Valley Post as a source.\n- [p103] The mayor of Amber Bay is Alden Marsh."
    changed = {(made("boundary_changed", of, honest, seed) or "").splitlines()[0] for seed in range(9)}
    assert changed == {f"Keep: Do not use {name} as a source." for name in ("Open Almanac", "Civic Register")}


def test_what_cannot_be_made() -> None:
    plain = "- [p103] The mayor of Amber Bay is Alden Marsh."
    of = compaction(task="Who is the mayor?", facts=FACTS[1:2])
    missing = {kind for kind in KINDS if made(kind, of, plain) is None}
    assert missing == {*(CHANGED_LINES.keys() - {"source_dropped"}), "wrong_facts"}


def test_values_from_other_histories_where_this_one_has_none() -> None:
    elsewhere = {"mayor": ["Alden Marsh", "Doris Lowell"], "elevation": ["99 m"]}
    plain = "- [p103] The mayor of Amber Bay is Alden Marsh.\nOpen: elevation of Amber Bay"
    of = compaction(facts=FACTS[1:2])
    wrong = damage("wrong_facts", of, plain, random.Random(0), elsewhere=elsewhere)
    assert wrong == plain.replace("Alden Marsh", "Doris Lowell")
    closed = damage("gap_closed", of, plain, random.Random(0), elsewhere=elsewhere)
    assert closed == plain.replace("Open: elevation of Amber Bay", "- elevation of Amber Bay: 99 m")
    assert damage("gap_closed", of, plain, random.Random(0)) == plain.splitlines()[0]
