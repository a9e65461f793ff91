"""What the student's own summaries keep, told while it trains.

The loss on held-out rows says how well a student goes on from the teacher's words. Here it writes alone, for
a few of these rows, greedily; counted are the values of the reference summaries (numbers, dates, identifiers,
names) that stand in what it wrote. A summary that the serving parser refuses keeps none.
"""

from typing import Any

import torch
from transformers import PreTrainedTokenizerBase, TrainerCallback

from condensery.facts import contains, split_sentences, values_in
from condensery.summary import parse_summary
from modeling.chat_template import IGNORED
from modeling.generation import Generation, generate_from_ids
from modeling.progress import say

SHOWN = 400  # characters of a summary
ROOM = 2  # times the longest reference: what runs on beyond that has not learned to stop


class FactRecall(TrainerCallback):
    """Logs `eval_fact_recall` and `eval_parsed` (the share of summaries that parse) after each evaluation.

    `rows` are tokens: `input_ids` and `labels`. Each process writes for its share of them.
    """

    def __init__(self, trainer: Any, rows: list[dict[str, list[int]]]) -> None:
        self.trainer, self.rows = trainer, rows

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        model = self.trainer.model
        was_training = model.training
        model.eval()
        devices = [model.device] if model.device.type == "cuda" else []
        with torch.random.fork_rng(devices), self.trainer.compute_loss_context_manager():
            counts = torch.tensor(self.count(args.process_index, args.world_size), device=args.device)
        kept, num_values, num_parsed = self.trainer.accelerator.reduce(counts).tolist()
        figures = {"eval_fact_recall": kept / num_values} if num_values else {}
        figures["eval_parsed"] = num_parsed / len(self.rows)
        kwargs["metrics"].update(figures)  # for --metric_for_best_model
        self.trainer.log(figures)  # in evaluation mode: TRL adds what it has gathered for the mode
        model.train(was_training)

    def count(self, process: int, num_processes: int) -> tuple[int, int, int]:
        """(values kept, values, summaries that parse) of one process's rows."""
        tokenizer = self.trainer.processing_class
        budget = ROOM * max(len(completion_of(row)) for row in self.rows)
        mine = self.rows[process::num_processes]
        prompts = [row["input_ids"][: -len(completion_of(row))] for row in mine]
        answers = generate_from_ids(
            *(self.trainer.model, tokenizer, prompts, budget),
            batch_size=self.trainer.args.per_device_eval_batch_size,
            label="write summaries",
        )
        say(f"a summary at this point: {answers[0].text[:SHOWN]!r} ({answers[0].finish_reason})")
        scores = [score(tokenizer, row, answer) for row, answer in zip(mine, answers, strict=True)]
        return sum(s[0] for s in scores), sum(s[1] for s in scores), sum(s[2] for s in scores)


def completion_of(row: dict[str, list[int]]) -> list[int]:
    """The supervised tokens, stop token included."""
    return [label for label in row["labels"] if label != IGNORED]


def score(
    tokenizer: PreTrainedTokenizerBase, row: dict[str, list[int]], answer: Generation
) -> tuple[int, int, bool]:
    """(values of the reference that the answer holds, values of the reference, whether it parses)."""
    reference = parse_summary(str(tokenizer.decode(completion_of(row), skip_special_tokens=True))).text or ""
    written = parse_summary(answer.text, answer.finish_reason).text
    values = {value for sentence in split_sentences(reference) for value in values_in(sentence)}
    return sum(contains(written or "", value) for value in values), len(values), written is not None
