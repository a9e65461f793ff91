"""What one summary is worth: facts kept, distractors carried over, statements without ground, tokens.

Scores are counts, so that any slice of rows can be summed; shares are taken in `evaluation.aggregate`.
"""

from dataclasses import dataclass

from rouge_score import rouge_scorer, tokenizers

from condensery.compaction import Compaction
from condensery.facts import IDENTIFIER, contains, num_distractors, recall, unsupported
from condensery.prompt import history_text, render_history, unescape
from condensery.summary import Summary
from condensery.tokens import Tokenizer, count_tokens
from data_synthesis.web import words


@dataclass(frozen=True)
class Score:
    """One summary of one compaction. A failed one keeps nothing; its tokens and statements do not count."""

    slice: str
    failure: str | None
    num_tokens: int
    num_history_tokens: int
    num_kept: int | None
    num_must_keep: int | None
    num_distractors: int | None
    num_unsupported: int
    num_statements: int
    num_identifiers_kept: int | None
    num_identifiers: int | None
    rouge_l: float | None


class WordTokenizer(tokenizers.Tokenizer):
    """ROUGE over our search terms: the package's own tokenizer drops everything that is not ASCII."""

    def tokenize(self, text: str) -> list[str]:
        return words(text)


ROUGE = rouge_scorer.RougeScorer(["rougeL"], tokenizer=WordTokenizer())


def score_summary(
    summary: Summary,
    compaction: Compaction,
    slice_name: str,
    tokenizer: Tokenizer | None,
    reference: str | None,
) -> Score:
    """`reference`: the teacher's summary of the same compaction, if any (ROUGE-L, identifiers)."""
    text = unescape(summary.text or "")
    facts = compaction.facts
    subjects = sorted({fact.subject for fact in facts or []})
    num_bad, num_statements = unsupported(text, history_text(compaction), subjects)
    kept, must_keep = (None, None) if facts is None else recall(text, facts)
    identifiers = None if reference is None else sorted(set(IDENTIFIER.findall(reference)))
    return Score(
        slice=slice_name,
        failure=summary.failure,
        num_tokens=count_tokens(text, tokenizer),
        num_history_tokens=count_tokens(render_history(compaction.expired), tokenizer),
        num_kept=kept,
        num_must_keep=must_keep,
        num_distractors=None if facts is None else num_distractors(text, facts),
        num_unsupported=num_bad,
        num_statements=num_statements,
        num_identifiers_kept=None
        if identifiers is None
        else sum(contains(text, item) for item in identifiers),
        num_identifiers=None if identifiers is None else len(identifiers),
        rouge_l=None if reference is None else ROUGE.score(reference, text)["rougeL"].fmeasure,
    )
