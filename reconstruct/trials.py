"""What an audit puts before a reward: an honest summary of a compaction and damaged ones of the same."""

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from condensery.compaction import Compaction, compactions_of
from condensery.files.jsonl import read_records
from condensery.trajectory import Cut, Trajectory
from reconstruct.damage import KINDS, Kind, damage

HONEST = "honest"


@dataclass(frozen=True)
class Trial:
    """`summaries` by kind of damage, the honest one first."""

    compaction: Compaction
    prompt_template: str
    summaries: dict[str, str]


def collect_trials(
    path: Path, limit: int | None, max_tokens: int, seed: int
) -> tuple[list[Trial], dict[str, dict[str, int]]]:
    """The trials in file order, and what was not used: compactions by reason, kinds that could not be made.

    With a limit, a compaction is taken only for the kinds of which there are not yet enough. Raises
    ValueError when there is no trial at all.
    """
    elsewhere = values_by_attribute(path)
    trials: list[Trial] = []
    made: Counter[str] = Counter()
    skipped: Counter[str] = Counter()
    impossible: Counter[str] = Counter()
    for compaction, cut in _compactions(path):
        wanted = [kind for kind in KINDS if limit is None or made[kind] < limit]
        if reason := why_not(compaction, cut):
            skipped[reason] += 1
        elif damaged := damage_all(wanted, compaction, cut.summary or "", max_tokens, elsewhere, seed):
            texts = {kind: text for kind, text in damaged.items() if text is not None}
            impossible.update(damaged.keys() - texts.keys())
            made.update(texts.keys())
            if texts:
                trials.append(Trial(compaction, cut.prompt_template, {HONEST: cut.summary or "", **texts}))
    if not trials:
        reasons = ", ".join(f"{number} {reason}" for reason, number in skipped.items()) or "it holds none"
        raise ValueError(
            f"no compaction in {path} can be used ({reasons}); the audit needs known facts and a summary "
            "that keeps them: `condensery web`, then `condensery record --teacher oracle`"
        )
    return trials, {"skipped": dict(skipped), "not_possible": dict(impossible)}


def damage_all(
    kinds: list[Kind],
    compaction: Compaction,
    honest: str,
    max_tokens: int,
    elsewhere: Mapping[str, Sequence[str]],
    seed: int,
) -> dict[str, str | None]:
    """Each kind has dice of its own, so that a limit changes no text."""
    dice = {kind: random.Random(f"{seed} {compaction.id} {kind}") for kind in kinds}
    return {kind: damage(kind, compaction, honest, dice[kind], max_tokens, elsewhere) for kind in kinds}


def _compactions(path: Path) -> Iterator[tuple[Compaction, Cut]]:
    for trajectory in read_records(path, Trajectory):
        yield from zip(compactions_of(trajectory), trajectory.cuts)


def values_by_attribute(path: Path) -> dict[str, list[str]]:
    """All values that the histories of a run know of an attribute, whoever's they are."""
    values: dict[str, dict[str, None]] = {}
    for trajectory in read_records(path, Trajectory):
        for fact in trajectory.facts or []:
            values.setdefault(fact.attribute, {})[fact.value] = None
    return {attribute: list(found) for attribute, found in values.items()}


def why_not(compaction: Compaction, cut: Cut) -> str | None:
    """Why the summary cannot stand for an honest one."""
    if compaction.facts is None:
        return "without known facts"
    if cut.summary is None:
        return "without a summary"
    must_keep = [fact for fact in compaction.facts if fact.must_keep]
    if not must_keep:
        return "with nothing to keep"
    if not all(fact.stands_in(cut.summary) for fact in must_keep):
        return "whose summary loses a fact"
    return None


def negative_rows(trials: list[Trial]) -> Iterator[dict]:
    """The damaged summaries one by one, each with the honest one that it was made of."""
    for trial in trials:
        for kind, summary in trial.summaries.items():
            if kind != HONEST:
                yield {
                    "compaction_id": trial.compaction.id,
                    "trajectory_id": trial.compaction.trajectory_id,
                    "language": trial.compaction.language,
                    "kind": kind,
                    "summary": summary,
                    "honest": trial.summaries[HONEST],
                    "prompt_template": trial.prompt_template,
                }
