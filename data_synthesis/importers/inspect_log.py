"""Inspect's eval logs: one document of `samples`, each with the messages of one run."""

from data_synthesis.importers.envelope import BadRow, Row


def is_inspect(value: object) -> bool:
    return isinstance(value, dict) and isinstance(value.get("samples"), list) and "eval" in value


def unfold_samples(rows: list[Row | BadRow]) -> list[Row | BadRow]:
    """A row for each sample, numbered from 1; other rows stay what they are."""
    unfolded: list[Row | BadRow] = []
    for row in rows:
        if isinstance(row, Row) and is_inspect(row.value) and row.value["samples"]:
            unfolded += [Row(n, _plain(sample)) for n, sample in enumerate(row.value["samples"], start=1)]
        else:
            unfolded.append(row)
    return unfolded


def _plain(sample: object) -> object:
    """A sample's `input` is the task, `target` the answer, and `id` the question's."""
    if not isinstance(sample, dict):
        return sample
    target = sample.get("target")
    return {"messages": sample.get("messages"), "question_id": sample.get("id")} | (
        {"answer": target} if isinstance(target, str) else {}
    )
