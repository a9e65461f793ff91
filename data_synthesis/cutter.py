"""Cut and summarize many imported runs at once; each is written as soon as it is done."""

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tqdm import tqdm

from condensery.endpoint import Endpoint
from condensery.files.jsonl import JsonlAppender, read_records
from condensery.reply import EndpointError
from condensery.trajectory import Trajectory
from data_synthesis.cutting import Cutting, HeadTooLong, Summarize, cut_trajectory
from data_synthesis.extractive import summarize_extractively
from data_synthesis.fitting import RowTooLong
from data_synthesis.import_config import ImportConfig
from data_synthesis.importers.log_file import Reason, Rejected
from data_synthesis.summarizer import EndpointSummarizer, ask_teacher

REASONS: dict[type[Exception], Reason] = {
    RowTooLong: "row_too_long",
    HeadTooLong: "head_too_long",
    EndpointError: "endpoint_error",
}


async def cut_all(
    trajectories: list[Trajectory],
    cutting: Cutting,
    config: ImportConfig,
    directory: Path,
) -> list[Rejected]:
    """Cut what is not in `trajectories.jsonl` yet; a row is written as soon as its run is done."""
    path = directory / "trajectories.jsonl"
    failed: list[Rejected] = []
    slots = asyncio.Semaphore(config.concurrency)
    endpoint = config.endpoint()
    with JsonlAppender(path) as out, JsonlAppender(directory / "calls.jsonl") as calls:
        done = {run.id for run in read_records(path, Trajectory)}
        todo = [run for run in trajectories if run.id not in done]
        summarize = _summarizer(endpoint, config, cutting, calls.append)

        async def work(run: Trajectory) -> None:
            async with slots:
                try:
                    cut = await cut_trajectory(run, cutting, summarize)
                except (RowTooLong, HeadTooLong, EndpointError) as error:
                    failed.append(reject(run, REASONS[type(error)], str(error)))
                else:
                    out.append(cut.model_dump(exclude_none=True))
            progress.update()

        # Tasks for all, slots for a few: a slow teacher answer holds up nothing but its own run.
        with tqdm(total=len(todo), unit="run", desc="import", disable=None) as progress:
            await asyncio.gather(*map(work, todo))
        if endpoint:
            await endpoint.close()
    return failed


def _summarizer(
    endpoint: Endpoint | None, config: ImportConfig, cutting: Cutting, log: Callable[[dict], None]
) -> Summarize:
    if endpoint is None:
        return partial(
            summarize_extractively, max_tokens=cutting.max_summary_tokens, tokenizer=cutting.tokenizer
        )
    return partial(ask_teacher, EndpointSummarizer(endpoint, config.prompt_template), log=log)


def reject(run: Trajectory, reason: Reason, detail: str) -> Rejected:
    file, _, line = run.source.rpartition(":")
    return Rejected(file, int(line), reason, detail)
