"""More summaries of the histories that were compacted: several samples of a teacher, or another teacher's.

    condensery summarize runs/record --teacher http://localhost:8001/v1 --teacher_model gpt-oss --samples 4

Appends to `summaries.jsonl` in the run, which `condensery pairs --samples` reads; what stands there already
is not asked for again, so the same command goes on after a kill. Failed answers are rows with a typed reason.
Exit status: 0; 1 when the teacher could not be reached for some; 2 when not even started.
"""

import asyncio
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import BaseModel, ConfigDict
from tqdm import tqdm

from condensery.compaction import Compaction, compactions_of
from condensery.endpoint import Endpoint, is_url
from condensery.files.config import fail, parse_args
from condensery.files.jsonl import JsonlAppender, read_records, repair_tail
from condensery.prompt import load_template
from condensery.reply import EndpointError
from condensery.trajectory import Cut, Trajectory
from data_synthesis.summarizer import EndpointSummarizer, ask_teacher

PROG = "condensery summarize"
FILE = "summaries.jsonl"


class Sample(BaseModel):
    """One more answer to the request of a compaction."""

    model_config = ConfigDict(extra="forbid")
    compaction_id: str
    number: int
    cut: Cut


@dataclass
class SummarizeConfig:
    """Whose histories, which teacher, how often."""

    path: Path = field(metadata={"positional": True, "help": "a run of `condensery record` or `import`"})
    teacher: str = field(metadata={"help": "the URL of an endpoint"})
    teacher_model: str = field(metadata={"help": "the model name at that endpoint"})
    teacher_api_key_env: str = field(
        default="OPENAI_API_KEY", metadata={"help": "environment variable with the key"}
    )
    samples: int = field(default=1, metadata={"help": "summaries of each history", "minimum": 1})
    prompt_template: str = field(default="full_v1", metadata={"help": "a name, or the path of a file"})
    temperature: float = field(default=0.6, metadata={"help": "of the teacher", "minimum": 0})
    top_p: float = field(default=0.95, metadata={"help": "of the teacher", "minimum": 0})
    max_summary_tokens: int = field(
        default=4096, metadata={"help": "budget of an answer, reasoning included", "minimum": 1}
    )
    timeout_seconds: float = field(
        default=600.0, metadata={"help": "for one answer, retries included", "minimum": 1}
    )
    concurrency: int = field(default=16, metadata={"help": "answers at a time", "minimum": 1})
    limit: int | None = field(default=None, metadata={"help": "the first histories only", "minimum": 1})
    dry_run: bool = field(default=False, metadata={"help": "say what would be asked, and stop"})

    def __post_init__(self) -> None:
        if not is_url(self.teacher):
            raise ValueError(f"teacher is {self.teacher!r}; give the URL of an endpoint (http://...)")
        load_template(self.prompt_template)
        if not (self.path / "trajectories.jsonl").is_file():
            raise ValueError(f"no {self.path}/trajectories.jsonl; give a run with compactions")


def main(argv: Sequence[str] | None = None) -> int:
    example = f"{PROG} runs/record --teacher http://localhost:8001/v1 --teacher_model gpt-oss --samples 4"
    config = parse_args(SummarizeConfig, argv=argv, prog=PROG, description=__doc__, example=example)
    sampling = {"temperature": config.temperature, "top_p": config.top_p}
    endpoint = Endpoint(
        config.teacher,
        config.teacher_model,
        api_key_env=config.teacher_api_key_env,
        timeout_seconds=config.timeout_seconds,
        max_concurrency=config.concurrency,
        sampling=sampling | {"max_tokens": config.max_summary_tokens},
    )
    try:
        repair_tail(config.path / FILE)  # a kill may have left half a row
        todo = list(requests(config))
        if config.dry_run:
            print(f"would ask for {len(todo)} summaries; nothing was started")
            return 0
        asyncio.run(endpoint.check())
    except (OSError, ValueError, EndpointError) as error:
        fail(PROG, " ".join(str(error).split()))
    try:
        counts = asyncio.run(ask_all(todo, endpoint, config))
    except KeyboardInterrupt:
        print(f"{PROG}: interrupted; answers are kept, the same command goes on", file=sys.stderr)
        return 130
    for outcome, number in counts.most_common():
        print(f"summaries {number:6}  {outcome}")
    return int(any(outcome.startswith("endpoint: ") for outcome in counts))


def requests(config: SummarizeConfig) -> Iterator[tuple[Compaction, int]]:
    """(compaction, number of the sample) for all that this teacher has not answered."""
    path = config.path / FILE
    rows = read_records(path, Sample) if path.exists() else ()
    done = {(row.compaction_id, row.number) for row in rows if row.cut.author == config.teacher_model}
    num_histories = 0
    for run in read_records(config.path / "trajectories.jsonl", Trajectory):
        # The retry of a failed summary asks the same again.
        for compaction in {each.id: each for each in compactions_of(run)}.values():
            if num_histories == config.limit:
                return
            num_histories += 1
            yield from (
                (compaction, number)
                for number in range(config.samples)
                if (compaction.id, number) not in done
            )


async def ask_all(
    todo: list[tuple[Compaction, int]], endpoint: Endpoint, config: SummarizeConfig
) -> Counter[str]:
    counts: Counter[str] = Counter()
    teacher = EndpointSummarizer(endpoint, config.prompt_template)
    jobs = iter(todo)
    with (
        JsonlAppender(config.path / FILE) as samples,
        JsonlAppender(config.path / "calls.jsonl") as calls,
        tqdm(total=len(todo), unit="summary", desc="summarize", disable=None) as progress,
    ):

        async def work() -> None:
            for compaction, number in jobs:  # one iterator, shared by all workers
                try:
                    cut = await ask_teacher(teacher, compaction, calls.append)
                except EndpointError as error:
                    counts[f"endpoint: {error.kind}"] += 1
                else:
                    row = Sample(compaction_id=compaction.id, number=number, cut=cut)
                    samples.append(row.model_dump())
                    counts[cut.failure or "accepted"] += 1
                progress.update()

        await asyncio.gather(*(work() for _ in range(config.concurrency)))
    await endpoint.close()
    return counts


def read_samples(directory: Path) -> dict[str, list[Cut]]:
    """What was summarized beside the run itself, by compaction."""
    path = directory / FILE
    samples: dict[str, list[Cut]] = {}
    for row in read_records(path, Sample) if path.exists() else ():
        samples.setdefault(row.compaction_id, []).append(row.cut)
    return samples


if __name__ == "__main__":
    sys.exit(main())
