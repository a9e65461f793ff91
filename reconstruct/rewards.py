"""The reward as TRL calls it: one function for all its parts.

TRL counts a reward that is missing as zero wherever another function has one, so the parts are added up here,
and logged one by one. An answer without a readable summary has quality 0: it restores nothing.
"""

import asyncio
import statistics
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

from condensery.endpoint import Endpoint
from condensery.facts import recall
from condensery.summary import parse_summary
from modeling.progress import say
from reconstruct.arguments import GRPOArguments
from reconstruct.generated import judge_summary
from reconstruct.guards import copy_rate, guard_penalty, unsupported_share
from reconstruct.instance import Instance
from reconstruct.judges import EndpointJudge, Judgement, judge_lexically
from reconstruct.likelihood import Reconstructor, quality_of, score_summaries
from reconstruct.missing import Missing
from reconstruct.reward import block_weights, quality, reward

Parts = dict[str, float]
# The quality of each summary of an instance with what it is made of; None where there is no verdict.
Measure = Callable[[Instance, list[str]], list[Parts | None]]


class ReconstructionReward:
    """Rewards of completions; `instances` by the number that stands in the dataset's column `instance`."""

    __name__ = "reconstruction"

    def __init__(
        self,
        arguments: GRPOArguments,
        max_tokens: int,
        stop_ids: Sequence[int],
        instances: list[Instance],
        measure: Measure,
    ) -> None:
        self.arguments, self.max_tokens, self.stop_ids = arguments, max_tokens, set(stop_ids)
        self.instances, self.measure = instances, measure
        self.missing = Missing("rewards")
        self.has_warned = False

    def __call__(
        self,
        completions: list[str],
        completion_ids: list[list[int]],
        instance: list[int],
        log_metric: Callable[[str, float], None],
        **_: Any,
    ) -> list[float | None]:
        """One reward for each completion, None where no verdict came; ValueError where that is often."""
        rewards: list[float | None] = []
        is_readable = False
        for number, group in groupby(range(len(completions)), key=lambda at: instance[at]):
            members = list(group)
            texts, tokens = [completions[at] for at in members], [completion_ids[at] for at in members]
            parts = self.of_group(self.instances[number], texts, tokens)
            log_parts(parts, log_metric)
            is_readable |= any(of_one is None or of_one["parsed"] for of_one in parts)
            rewards += [None if of_one is None else of_one["total"] for of_one in parts]
        for value in rewards:
            self.missing.add("no verdict" if value is None else None)
        if not is_readable and not self.has_warned:
            self.has_warned = True
            say(
                f"none of {len(completions)} answers holds a summary that can be read, and equal rewards "
                "train nothing: start from a model that writes summaries (condensery sft), or raise "
                f"--max_completion_length {self.max_tokens}"
            )
        log_metric("missing", sum(value is None for value in rewards) / len(rewards))
        self.missing.stop_above(self.arguments.max_missing)
        return rewards

    def of_group(self, instance: Instance, texts: list[str], tokens: list[list[int]]) -> list[Parts | None]:
        """Everything about each completion of one instance."""
        finished = ["stop" if ids and ids[-1] in self.stop_ids else "length" for ids in tokens]
        parsed = [parse_summary(text, reason).text for text, reason in zip(texts, finished, strict=True)]
        good = [summary for summary in parsed if summary is not None]
        measured = iter(self.measure(instance, good) if good else [])
        return [
            self.of_one(instance, summary, len(ids), {"quality": 0.0} if summary is None else next(measured))
            for summary, ids in zip(parsed, tokens, strict=True)
        ]

    def of_one(
        self, instance: Instance, summary: str | None, num_tokens: int, parts: Parts | None
    ) -> Parts | None:
        """R = Q - lambda |S| / L_max, less what the guards take off."""
        arguments = self.arguments
        if parts is None:
            return None
        penalty = guard_penalty(summary, instance.compaction) if summary and arguments.guards else 0.0
        lengths = (num_tokens, self.max_tokens, arguments.length_weight)
        total = reward(parts["quality"], *lengths, arguments.quality_floor, penalty)
        if total is None:  # a quality that is no number
            return None
        parts |= {"total": total, "penalty": penalty, "parsed": float(summary is not None)}
        if summary is not None:
            parts["unsupported"] = unsupported_share(summary, instance.compaction)
            parts["copied"] = copy_rate(summary, "\n".join(block.text for block in instance.blocks))
        if instance.compaction.facts:
            num_kept, num_facts = recall(summary or "", instance.compaction.facts)
            parts["fact_recall"] = num_kept / max(1, num_facts)
        return parts


def log_parts(parts: list[Parts | None], log_metric: Callable[[str, float], None]) -> None:
    """The mean of each part over a group, and whether it tells its members apart at all."""
    present = [of_one for of_one in parts if of_one is not None]
    for name in sorted({name for of_one in present for name in of_one}):
        values = [of_one[name] for of_one in present if name in of_one]
        log_metric(name, statistics.fmean(values))
        log_metric(f"{name}/zero_std", float(max(values) == min(values)))


def measure_likelihood(reconstructor: Reconstructor, arguments: GRPOArguments) -> Measure:
    """By a frozen model: never missing."""

    def measure(instance: Instance, summaries: list[str]) -> list[Parts | None]:
        weight = arguments.contrast_weight
        weights = [weight for of_mask in weights_of(instance, arguments) for weight in of_mask]
        scores = score_summaries(reconstructor, instance, summaries, with_contrast=weight > 0)
        parts: list[Parts | None] = []
        for of_summary in scores:
            of_one = {"quality": quality_of(of_summary, weight, weights)}
            of_one["gain"] = statistics.fmean(score.gain for score in of_summary)
            contrasts = [score.contrast for score in of_summary if score.contrast is not None]
            if contrasts:
                of_one["contrast"] = statistics.fmean(contrasts)
            for kind in sorted({instance.blocks[score.block].kind for score in of_summary}):
                gains = [score.gain for score in of_summary if instance.blocks[score.block].kind == kind]
                of_one[f"gain/{kind}"] = statistics.fmean(gains)
            parts.append(of_one)
        return parts

    return measure


def measure_generated(arguments: GRPOArguments) -> Measure:
    """As published: a model restores the hidden blocks, a judge compares; over endpoints."""
    restoring = Endpoint(arguments.reconstructor_url or "", arguments.reconstructor)
    judging = None if arguments.judge == "lexical" else Endpoint(arguments.judge_url or "", arguments.judge)
    judge = EndpointJudge(judging) if judging else judge_lexically
    missing = Missing("restorations")
    counts = [missing, judge.missing] if isinstance(judge, EndpointJudge) else [missing]

    async def of_all(instance: Instance, summaries: list[str]) -> list[list[list[Judgement | None]]]:
        try:
            asked = (judge_summary(restoring, judge, instance, summary, missing) for summary in summaries)
            return list(await asyncio.gather(*asked))
        finally:  # connections belong to the event loop
            await restoring.close()
            if judging:
                await judging.close()

    def measure(instance: Instance, summaries: list[str]) -> list[Parts | None]:
        parts: list[Parts | None] = []
        for judgements in asyncio.run(of_all(instance, summaries)):
            asked = [verdict for of_mask in judgements for verdict in of_mask]
            verdicts = [verdict for verdict in asked if verdict is not None]
            value = quality(judgements, weights_of(instance, arguments))
            if value is None:
                parts.append(None)
                continue
            precision = statistics.fmean(verdict.precision for verdict in verdicts)
            of_one = {"quality": value, "precision": precision}
            of_one["recall"] = statistics.fmean(verdict.recall for verdict in verdicts)
            of_one["missing_verdicts"] = 1 - len(verdicts) / len(asked)
            parts.append(of_one)
        for of_kind in counts:
            of_kind.stop_above(arguments.max_missing)
        return parts

    return measure


def weights_of(instance: Instance, arguments: GRPOArguments) -> list[list[float]]:
    return block_weights(instance, {"constraint": arguments.constraint_weight})
