"""Rollouts on the workers of a Ray cluster: `condensery record --executor ray`.

The workers run the same rollouts. Each call comes back as it is made, and the one process that was started
writes it: the files are those of a run without Ray, and survive a kill in the same way. What the agent is
built from (the web, a corpus, the tokenizer) must lie at the same path on every machine, and the keys of
endpoints in the environment there.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from itertools import cycle
from typing import Any

import ray

from condensery.reply import EndpointError
from condensery.trajectory import Trajectory
from data_synthesis.agent import Log
from data_synthesis.question import Question
from data_synthesis.record import build_agent
from data_synthesis.record_config import RecordConfig
from data_synthesis.recorder import Job, Make
from data_synthesis.rollout import rollout
from data_synthesis.run_state import Outcome


class Worker:
    """Builds the agent once, then makes rollouts, many at a time."""

    def __init__(self, config: RecordConfig, questions: list[Question]) -> None:
        self.agent = build_agent(config, questions)

    async def run(self, job: Job, stored: list[dict]) -> AsyncIterator[tuple[str, dict]]:
        """("call", row) as calls are made, then once ("outcome", fields)."""
        rows: asyncio.Queue[tuple[str, dict] | None] = asyncio.Queue()

        async def work() -> None:
            def log(row: dict) -> None:
                rows.put_nowait(("call", row))

            outcome = await rollout(self.agent, job.question, job.id, job.number, log, stored)
            error = vars(outcome.error) if outcome.error else None
            rows.put_nowait(("outcome", {"trajectory": outcome.trajectory.model_dump(), "error": error}))

        task = asyncio.create_task(work())
        task.add_done_callback(lambda _: rows.put_nowait(None))
        while (row := await rows.get()) is not None:
            yield row
        await task


def make_on_ray(config: RecordConfig, questions: list[Question]) -> Make:
    """Starts the workers. A worker that dies is started again, and its rollouts are made again from the calls
    that came back."""
    # A cluster of this machine alone is nobody else's to reach.
    here: dict = {} if "RAY_ADDRESS" in os.environ else {"_node_ip_address": "127.0.0.1"}
    ray.init(log_to_driver=False, **here)
    remote: Any = ray.remote(Worker)
    settings = {"num_cpus": 1, "max_restarts": -1, "max_concurrency": config.concurrency}
    workers = cycle([remote.options(**settings).remote(config, questions) for _ in range(config.num_workers)])

    async def make(job: Job, log: Log, stored: list[dict]) -> Outcome:
        calls = list(stored)

        def keep(row: dict) -> None:
            calls[row["step"] :] = [row]
            log(row)

        while True:
            try:
                return await _attempt(next(workers), job, keep, list(calls))
            except ray.exceptions.RayActorError:
                continue

    return make


async def _attempt(worker: Any, job: Job, log: Log, stored: list[dict]) -> Outcome:
    fields: dict = {}
    async for reference in worker.run.options(num_returns="streaming").remote(job, stored):
        kind, fields = await reference
        if kind == "call":
            log(fields)
    error = EndpointError(**fields["error"]) if fields["error"] else None
    return Outcome(Trajectory.model_validate(fields["trajectory"]), error)
