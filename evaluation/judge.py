"""Judge the answers of recorded runs, and compare the runs: accuracy with intervals, costs, how they ended.

    condensery judge runs/react runs/resum --output_dir runs/comparison
    condensery judge runs/resum --judge http://localhost:8002/v1 --judge_model Qwen2.5-72B-Instruct

Appends to `verdicts.jsonl` in each run, which `condensery pairs` reads. A judge's answer that cannot be read
is no verdict: it counts neither as right nor as wrong, and is asked for again the next time. Exit status: 0;
1 when too many verdicts are missing; 2 when not even started.
"""

import asyncio
import sys
from asyncio import Semaphore
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import jinja2
from tqdm import tqdm

from condensery.endpoint import Endpoint, is_url
from condensery.facts import contains
from condensery.files.config import fail, parse_args, resolved_config
from condensery.files.jsonl import JsonlAppender, read_records
from condensery.files.run_directory import describe_run, open_run_directory, write_json
from condensery.prompt import escape
from condensery.reply import EndpointError
from condensery.trajectory import Trajectory
from condensery.verdict import FILE, Verdict, parse_verdict, read_verdicts
from evaluation.run_table import describe_runs, to_markdown

PROG = "condensery judge"
MATCH = "match"
BATCH = 64  # after so many it is seen whether too many are missing
PROMPT_NAME = "judge_v1"
PROMPT = Path(__file__).parent / "prompts" / f"{PROMPT_NAME}.jinja"


@dataclass
class JudgeConfig:
    """Which runs, and who judges them."""

    paths: list[Path] = field(metadata={"positional": True, "help": "directories of recorded runs"})
    output_dir: Path | None = field(
        default=None, metadata={"help": "where judge.md and judge.json go (default: they are only printed)"}
    )
    judge: str = field(
        default=MATCH,
        metadata={"help": f"{MATCH} (the reference stands in the answer), or a URL"},
    )
    judge_model: str | None = field(default=None, metadata={"help": "the model name at that endpoint"})
    judge_api_key_env: str = field(
        default="OPENAI_API_KEY", metadata={"help": "environment variable with the key"}
    )
    max_missing: float = field(
        default=0.1, metadata={"help": "share of answers without a verdict that is tolerated"}
    )
    timeout_seconds: float = field(
        default=120.0, metadata={"help": "for one verdict, retries included", "minimum": 1}
    )
    concurrency: int = field(default=16, metadata={"help": "verdicts at a time", "minimum": 1})
    resume: bool = field(default=False, metadata={"help": "write into an output_dir that holds a comparison"})

    def __post_init__(self) -> None:
        if self.judge != MATCH and not (is_url(self.judge) and self.judge_model):
            raise ValueError(f"--judge is {MATCH!r} or the URL of an endpoint, with --judge_model")
        if not 0 <= self.max_missing <= 1:
            raise ValueError(f"max_missing is {self.max_missing:g}; it is a share, from 0 to 1")
        for path in self.paths:
            if not (path / "trajectories.jsonl").is_file():
                raise ValueError(f"no {path}/trajectories.jsonl; `condensery record` writes it")

    @property
    def name(self) -> str:
        return self.judge_model or self.judge

    def endpoint(self) -> Endpoint | None:
        if self.judge == MATCH:
            return None
        return Endpoint(
            self.judge,
            self.judge_model or "",
            api_key_env=self.judge_api_key_env,
            timeout_seconds=self.timeout_seconds,
            max_concurrency=self.concurrency,
            sampling={"temperature": 0.0},
        )


def main(argv: Sequence[str] | None = None) -> int:
    example = f"{PROG} runs/react runs/resum --output_dir runs/comparison"
    config = parse_args(JudgeConfig, argv=argv, prog=PROG, description=__doc__, example=example)
    try:
        runs = {path: list(read_records(path / "trajectories.jsonl", Trajectory)) for path in config.paths}
        for path, run in runs.items():
            if not any(trajectory.answer for trajectory in run):
                raise ValueError(f"{path}: no question of this run has an answer to judge by")
        if endpoint := config.endpoint():
            asyncio.run(endpoint.check())
        if config.output_dir:
            open_run_directory(config.output_dir, config.resume)
    except EndpointError as error:
        fail(PROG, f"--judge {config.judge}: {' '.join(str(error).split())}")
    except (OSError, ValueError) as error:
        fail(PROG, " ".join(str(error).split()))
    try:
        asyncio.run(judge_all(runs, config))
        return report(runs, config)
    except KeyboardInterrupt:
        print(f"{PROG}: interrupted; verdicts are kept, the same command goes on", file=sys.stderr)
        return 130
    except (OSError, ValueError) as error:
        fail(PROG, f"{error}; verdicts are kept, the same command goes on", status=1)


async def judge_all(runs: dict[Path, list[Trajectory]], config: JudgeConfig) -> None:
    """A verdict on each answer that this judge has not given one on yet, appended as it comes."""
    endpoint = config.endpoint()
    slots = Semaphore(config.concurrency)
    for path, run in runs.items():
        with JsonlAppender(path / FILE) as verdicts:
            known = read_verdicts(path, config.name)
            todo = [each for each in run if each.answer and not _is_judged(known.get(each.id))]
            most = config.max_missing * sum(bool(each.answer) for each in run)
            with tqdm(total=len(todo), unit="run", desc=f"judge {path}", disable=None) as progress:
                num_missing = 0
                for batch in (todo[at : at + BATCH] for at in range(0, len(todo), BATCH)):
                    asked = [_judge_into(verdicts, each, config.name, endpoint, slots) for each in batch]
                    num_missing += (await asyncio.gather(*asked)).count(None)
                    progress.update(len(batch))
                    if num_missing > most and endpoint:
                        raise ValueError(
                            f"{num_missing} verdicts are missing in {path}, more than --max_missing "
                            f"{config.max_missing:g} of all; the judge's answers stand in {path / FILE}"
                        )
    if endpoint:
        await endpoint.close()


async def _judge_into(
    verdicts: JsonlAppender, trajectory: Trajectory, judge: str, endpoint: Endpoint | None, slots: Semaphore
) -> bool | None:
    async with slots:
        verdict = await judge_one(trajectory, judge, endpoint)
    verdicts.append(verdict.model_dump())
    return verdict.verdict


def _is_judged(verdict: Verdict | None) -> bool:
    return verdict is not None and verdict.verdict is not None


async def judge_one(trajectory: Trajectory, judge: str, endpoint: Endpoint | None) -> Verdict:
    """No answer is wrong without asking. A judge that cannot be read is asked once more."""
    verdict = Verdict(trajectory_id=trajectory.id, verdict=False, judge=judge)
    if not (trajectory.prediction or "").strip():
        return verdict
    if endpoint is None:
        verdict.verdict = contains(trajectory.prediction or "", trajectory.answer or "")
        return verdict
    verdict.verdict, verdict.prompt_template = None, PROMPT_NAME
    for _ in range(2):
        try:
            reply = await endpoint.chat(judge_prompt(trajectory))
        except EndpointError as error:
            verdict.failure = error.kind
            return verdict
        verdict.raw, verdict.failure = reply.content or "", None
        verdict.prompt_tokens = (verdict.prompt_tokens or 0) + (reply.prompt_tokens or 0)
        verdict.completion_tokens = (verdict.completion_tokens or 0) + (reply.completion_tokens or 0)
        verdict.verdict = parse_verdict(reply.content) if reply.finish_reason != "length" else None
        if verdict.verdict is not None:
            return verdict
        verdict.failure = "unreadable"
    return verdict


def judge_prompt(trajectory: Trajectory) -> list[dict]:
    """All three texts are data: an answer that says "Verdict: correct" is only an answer."""
    template = jinja2.Template(PROMPT.read_text(encoding="utf-8"), undefined=jinja2.StrictUndefined)
    texts = {"question": trajectory.task, "reference": trajectory.answer, "given": trajectory.prediction}
    return [{"role": "user", "content": template.render({k: escape(v or "") for k, v in texts.items()})}]


def report(runs: dict[Path, list[Trajectory]], config: JudgeConfig) -> int:
    """Print the table, write it where asked; the exit status."""
    figures = describe_runs(
        {str(path): run for path, run in runs.items()},
        {str(path): read_verdicts(path, config.name) for path in runs},
    )
    text = to_markdown(figures, config.name)
    print(text)
    if config.output_dir:
        write_json(config.output_dir / "judge.json", {"judge": config.name, "runs": figures})
        (config.output_dir / "judge.md").write_text(text, encoding="utf-8")
        inputs = [path / name for path in runs for name in ("trajectories.jsonl", FILE)]
        describe_run(config.output_dir, resolved_config(config), inputs)
    too_many = [name for name, row in figures.items() if row["missing_share"] > config.max_missing]
    if too_many:
        print(
            f"{PROG}: more than {config.max_missing:.0%} of the verdicts are missing in "
            f"{', '.join(too_many)}; the figures there say little. The same command asks for them again",
            file=sys.stderr,
        )
    return int(bool(too_many))


if __name__ == "__main__":
    sys.exit(main())
