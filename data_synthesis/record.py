"""Run an explorer on questions, compact its history with a teacher, and record both.

    condensery record --questions runs/web --output_dir runs/record
    condensery record --questions q.jsonl --web runs/web --output_dir runs/record \\
        --explorer http://localhost:8000/v1 --explorer_model WebSailor-30B --explorer_protocol text \\
        --teacher http://localhost:8001/v1 --teacher_model gpt-oss-120b
"""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from condensery.endpoint import is_url
from condensery.files.config import fail, parse_args, resolved_config
from condensery.files.run_directory import describe_run, fingerprint, open_run_directory, read_run
from condensery.prompt import template_files
from condensery.reply import EndpointError
from condensery.tokens import Tokenizer
from data_synthesis.agent import Agent, Explorer, FactsOf, Summarizer, Tools
from data_synthesis.explorer import EndpointExplorer, system_prompt
from data_synthesis.question import Question
from data_synthesis.record_config import OUTSIDE_IDENTITY, RecordConfig
from data_synthesis.recorder import count_outcomes, make_here, plan_jobs, read_questions, record
from data_synthesis.summarizer import EndpointSummarizer

if TYPE_CHECKING:
    from data_synthesis.tools.live_tools import LiveTools

PROG = "condensery record"


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status 0; 1 when rows were rejected (unless `--on_error skip`); 2 when nothing was started."""
    config = parse_args(
        RecordConfig,
        argv=argv,
        prog=PROG,
        description="Run an explorer on questions, compact its history with a teacher, and record both.",
        example="condensery record --questions runs/web --output_dir runs/record",
    )
    try:
        path = config.questions / "questions.jsonl" if config.questions.is_dir() else config.questions
        questions, rejected = read_questions(path)
        check_inputs(config, questions, rejected)
        agent = build_agent(config, questions)
        jobs = plan_jobs(questions[: config.limit], config.rollouts, config.identity())
        if config.dry_run:
            print(f"would make {len(jobs)} rollouts of {len(questions[: config.limit])} questions, "
                  f"{len(rejected)} questions rejected; nothing was started")  # fmt: skip
            return 0
        asyncio.run(check_endpoints(config, agent))
        inputs = [path, *([config.web / "pages.jsonl"] if config.web else [])]
        inputs += [config.corpus] if config.corpus else []
        inputs += template_files(config.prompt_template)
        check_resume(config, inputs)
        directory = open_run_directory(config.output_dir, config.resume)
    except (OSError, ValueError, EndpointError) as error:
        fail(PROG, " ".join(str(error).split()))
    try:
        describe_run(directory, resolved_config(config), inputs)
        if config.executor == "ray":
            from data_synthesis.ray_executor import make_on_ray

            make = make_on_ray(config, questions)
            asyncio.run(record(make, jobs, directory, rejected, config.concurrency))
        else:
            asyncio.run(record_and_close(agent, jobs, directory, rejected, config.concurrency))
        return report(directory, config, inputs)
    except KeyboardInterrupt:
        print(f"{PROG}: interrupted; finished rollouts are kept, go on with --resume", file=sys.stderr)
        return 130
    except (OSError, ValueError) as error:  # a full disk, another writer, a damaged file of an earlier run
        fail(PROG, f"{error}; finished rollouts are kept, go on with --resume", status=1)


def check_inputs(config: RecordConfig, questions: list[Question], rejected: list[dict]) -> None:
    """Raises ValueError for what cannot work."""
    if not questions:
        first = next((f"line {row['line']}: {row['reason']}" for row in rejected), "it is empty")
        raise ValueError(f"no usable question in {config.questions}: {first}")
    if config.search == "web" and config.web is None:
        raise ValueError(
            "nothing to search: give --web, a directory made by `condensery web`, or --search corpus, serper "
            "or searxng"
        )
    unknown = [question.id for question in questions if question.facts is None]
    if unknown and (config.explorer == "scripted" or config.teacher == "oracle"):
        raise ValueError(
            f"question {unknown[0]!r} has no facts, which the scripted explorer and the oracle teacher "
            "need; use questions made by `condensery web`, or endpoints"
        )


def build_agent(config: RecordConfig, questions: list[Question]) -> Agent:
    """Raises ValueError or OSError when the web or the tokenizer cannot be loaded."""
    # The search index is slow to import.
    from data_synthesis.scripted import OracleTeacher, memorizing_explorer, scripted_explorer

    tokenizer = _load_tokenizer(config.tokenizer)
    tools, facts_of = _build_tools(config, questions, tokenizer)
    explorer: Explorer = memorizing_explorer if config.paradigm == "mem1" else scripted_explorer
    summarizer: Summarizer = OracleTeacher(questions)
    if config.explorer != "scripted":
        budget = {"max_tokens": config.max_turn_tokens} if config.max_turn_tokens else {}
        endpoint = config.endpoint("explorer", **budget)
        explorer = EndpointExplorer(endpoint, config.explorer_protocol, tools.schemas)
    if config.teacher != "oracle":
        endpoint = config.endpoint("teacher", max_tokens=config.max_summary_tokens)
        summarizer = EndpointSummarizer(endpoint, config.prompt_template)
    return Agent(
        explorer,
        tools,
        summarizer,
        author=config.teacher_model or config.teacher,
        prompt_template=config.prompt_template,
        system=""
        if config.explorer == "scripted"
        else system_prompt(config.explorer_protocol, tools.schemas, config.paradigm),
        tokenizer=tokenizer,
        limits=config.limits(),
        facts_of=facts_of,
        paradigm=config.paradigm,
    )


def _build_tools(
    config: RecordConfig, questions: list[Question], tokenizer: Tokenizer | None
) -> tuple[Tools, FactsOf | None]:
    """The tools, and who knows the truth about a run: the offline web does, if the questions are about it."""
    if config.search != "web":
        from data_synthesis.tools.live_tools import build_tools

        live = build_tools(config, tokenizer)
        for reason, lines in live.corpus.rejected.items() if live.corpus else ():
            print(f"{config.corpus}: {len(lines)} lines not used, from {lines[0]}: {reason}", file=sys.stderr)
        return live, None
    from data_synthesis.web import load_web
    from data_synthesis.web_tools import WebTools

    assert config.web is not None
    web = load_web(config.web)
    for fact in (fact for question in questions for fact in question.facts or []):
        page = web.pages.get(fact.source or "")
        if page is None or not fact.stands_in("\n".join(page.sentences)):
            raise ValueError(
                f"the questions are of another web: no page {fact.source} in {config.web} says that "
                f"{fact.attribute} of {fact.subject} is {fact.value}"
            )
    return WebTools(web, config.search_results, config.snippet_sentences), web.facts_of


def _load_tokenizer(name: str | None) -> Tokenizer | None:
    if name is None:
        return None
    from modeling.loading import load_tokenizer  # needs the extra `train`

    return cast(Tokenizer, load_tokenizer(name))


def live_tools_of(agent: Agent) -> "LiveTools | None":
    from data_synthesis.tools.live_tools import LiveTools

    return agent.tools if isinstance(agent.tools, LiveTools) else None


async def record_and_close(agent: Agent, *job: Any) -> None:
    """Connections belong to the event loop they were opened in, and end with it."""
    try:
        await record(make_here(agent), *job)
    finally:
        for role in (agent.explorer, agent.summarizer):
            if isinstance(role, EndpointExplorer | EndpointSummarizer):
                await role.endpoint.close()
        if live := live_tools_of(agent):
            await live.close()


async def check_endpoints(config: RecordConfig, agent: Agent) -> None:
    """Raises EndpointError or OSError when an endpoint or a search backend is down, misnamed or refuses the
    key, before anything starts."""
    if live := live_tools_of(agent):
        await live.start()
    roles: list[Literal["explorer", "teacher", "reader"]] = ["explorer", "teacher", "reader"]
    for role in roles:
        url = vars(config)[role]
        if url and is_url(url):
            try:
                await config.endpoint(role).check()
            except EndpointError as error:
                model = vars(config)[f"{role}_model"]
                raise EndpointError(error.kind, f"{role} {model} at {url}: {error.detail}") from error


def check_resume(config: RecordConfig, inputs: list[Path]) -> None:
    """Raises ValueError when the run to be resumed was another one: its rollouts would stand among ours."""
    path = config.output_dir / "run.json"
    if not config.resume or not path.exists():
        return
    stored = read_run(path)
    now = resolved_config(config)
    changed = [
        f"{name} was {stored['config'].get(name)}, is {value}"
        for name, value in now.items()
        if name not in OUTSIDE_IDENTITY and stored["config"].get(name) != value
    ]
    if list(stored["inputs"].values()) != [fingerprint(path) for path in inputs]:
        changed.append("the questions, the web or the prompt template are not the same")
    if changed:
        raise ValueError(
            f"cannot resume {config.output_dir}: {'; '.join(changed)}; choose another --output_dir"
        )


def report(directory: Path, config: RecordConfig, inputs: list[Path]) -> int:
    """The closing table, `run.json` with its counts, and the exit status."""
    counts = count_outcomes(directory)
    describe_run(
        directory, resolved_config(config), inputs, {name: dict(rows) for name, rows in counts.items()}
    )
    for name, rows in counts.items():
        for reason, number in rows.most_common():
            print(f"{name:9} {number:6}  {reason}")
    print(f"{directory}: {counts['rollouts'].total()} rollouts, {counts['rejected'].total()} rejected")
    # A summary that was asked for and failed is no reason to make the window smaller.
    was_due = any("summar" in event for event in counts["events"])
    if counts["rollouts"] and config.paradigm == "resum" and not was_due:
        print(
            f"nothing was compacted in a window of {config.window_tokens} tokens; lower --window_tokens "
            "(the offline web fills 700 with --reserve_tokens 0)",
            file=sys.stderr,
        )
    return int(bool(counts["rejected"]) and config.on_error == "fail")


if __name__ == "__main__":
    sys.exit(main())
