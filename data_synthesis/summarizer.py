"""Asking for a summary: the request is made to fit; the answer is an accepted summary or a typed failure."""

from condensery.compaction import Compaction, compaction_of
from condensery.context import visible_messages
from condensery.endpoint import Endpoint
from condensery.prompt import render_prompt
from condensery.reply import EndpointError, Reply
from condensery.summary import Summary, check_gain, parse_summary
from condensery.tokens import RequestCounter
from condensery.trajectory import Cut, Trajectory
from data_synthesis.agent import Agent, Log
from data_synthesis.fitting import RowTooLong, fit
from data_synthesis.journal import Journal, answer_row, error_row, stored_reply


class EndpointSummarizer:
    """A teacher, or a trained summarizer, behind an endpoint."""

    def __init__(self, endpoint: Endpoint, prompt_template: str) -> None:
        self.endpoint = endpoint
        self.prompt_template = prompt_template

    async def __call__(self, compaction: Compaction) -> Reply:
        return await self.endpoint.chat(render_prompt(compaction, self.prompt_template))


async def ask_teacher(teacher: EndpointSummarizer, compaction: Compaction, log: Log) -> Cut:
    """One summary of a history that is no live run's; the call is logged. Raises EndpointError."""
    author = teacher.endpoint.model
    row: dict = {"kind": "summary", "key": compaction.id, "author": author}
    try:
        reply = await teacher(compaction)
    except EndpointError as error:
        log(row | error_row(error))
        raise
    summary = read_summary(reply)
    log(row | {"failure": summary.failure} | answer_row(reply))
    return Cut(
        position=0,
        summary=summary.text,
        failure=summary.failure,
        raw=reply.content or "",
        reasoning=reasoning_of(reply),
        author=author,
        prompt_template=teacher.prompt_template,
        prompt_tokens=reply.prompt_tokens,
        completion_tokens=reply.completion_tokens,
    )


async def ask_summary(
    agent: Agent, trajectory: Trajectory, position: int, num_tokens: int, journal: Journal
) -> tuple[Cut, EndpointError | None]:
    """Ask once for the summary of what expired at `position`; `num_tokens` is what the model sees without it.

    Returns the cut, accepted or failed, and the endpoint's error where that was the failure. Changes nothing.
    """
    made_at = None if position == len(trajectory.messages) else len(trajectory.messages)
    compaction = compaction_of(trajectory, position, made_at)
    cut = Cut(position=position, made_at=made_at, author=agent.author, prompt_template=agent.prompt_template)
    try:
        reply = await _ask(agent, compaction, journal)
    except EndpointError as error:
        cut.failure = "endpoint_error"
        return cut, error
    summary = read_summary(reply)
    # Measured on the whole request, where task and framing are counted on both sides.
    if summary.text is not None:
        summary = check_gain(summary, _tokens_with(agent, trajectory, cut, summary.text), num_tokens)
    cut.summary, cut.failure, cut.raw = summary.text, summary.failure, reply.message.content
    cut.prompt_tokens, cut.completion_tokens = reply.prompt_tokens, reply.completion_tokens
    cut.reasoning = reasoning_of(reply)
    return cut, None


async def _ask(agent: Agent, compaction: Compaction, journal: Journal) -> Reply:
    """The summarizer's answer: played back, or asked for and stored with its prompt. Raises EndpointError."""
    assert agent.summarizer is not None
    stored = journal.recall("summary", compaction.id)
    if stored:
        return stored_reply(stored)
    row: dict = {"author": agent.author}
    try:
        request, row["excerpted_tokens"] = fit_request(agent, compaction)
        row["prompt"] = render_prompt(request, agent.prompt_template)
        reply = await agent.summarizer(request)
    except EndpointError as error:
        journal.write("summary", compaction.id, row | error_row(error))
        raise
    row["failure"] = read_summary(reply).failure
    journal.write("summary", compaction.id, row | answer_row(reply))
    return reply


def _tokens_with(agent: Agent, trajectory: Trajectory, cut: Cut, text: str) -> int:
    """Tokens the model would see if this summary were accepted."""
    accepted = cut.model_copy(update={"summary": text})
    tried = trajectory.model_copy(update={"cuts": [*trajectory.cuts, accepted]})
    return RequestCounter(agent.tokenizer, agent.tools.schemas).count(visible_messages(tried))


def read_summary(reply: Reply) -> Summary:
    """The parser's verdict; an empty text next to reasoning that the endpoint split off is thinking only."""
    if (
        reply.message.reasoning_content
        and not (reply.content or "").strip()
        and reply.finish_reason != "length"
    ):
        return Summary(failure="tool_call" if reply.message.tool_calls else "thinking_only")
    return parse_summary(reply.content, reply.finish_reason, bool(reply.message.tool_calls))


def reasoning_of(reply: Reply) -> str:
    """What the teacher thought before its summary, split off by the endpoint or not."""
    thought, closed, _ = (reply.content or "").rpartition("</think>")
    inside = thought.strip().removeprefix("<think>").strip() if closed else ""
    return "\n".join(filter(None, [(reply.message.reasoning_content or "").strip(), inside]))


def fit_request(agent: Agent, compaction: Compaction) -> tuple[Compaction, int]:
    """The compaction with its longest pieces excerpted until its request fits; how many tokens went.

    Raises EndpointError, as the endpoint would, where even short excerpts do not fit.
    """
    max_tokens = agent.limits.max_prompt_tokens
    if max_tokens is None:
        return compaction, 0
    try:
        expired, num_removed = fit(compaction, agent.prompt_template, max_tokens, agent.tokenizer)
    except RowTooLong as error:
        raise EndpointError("context_length", str(error)) from error
    return compaction.model_copy(update={"expired": expired}), num_removed
