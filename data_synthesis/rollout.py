"""ReSum (arXiv 2509.13313): when the context fills, an external summarizer writes s, the working history
becomes the one user turn (q, s), and exploration goes on.

A compaction is a transaction. The trace is never rewritten: an accepted summary adds a cut, a failed one adds
a typed failure and leaves what the model sees byte for byte as it was.
"""

from condensery.message import Message
from condensery.reply import EndpointError, Reply
from condensery.trajectory import Termination, Trajectory
from data_synthesis.agent import Agent, Log
from data_synthesis.importers.text_protocol import last_answer
from data_synthesis.journal import answer_row, error_row, stored_reply
from data_synthesis.paradigms import make_room
from data_synthesis.question import Question
from data_synthesis.run_state import Outcome, Run

LAST_CALL = "This is your last turn: no tool can be called any more. Give your final answer now."
NO_TURN = "Your last turn held neither a tool call nor an answer. Call a tool, or give your answer."
CUT_TURN = "Your last turn was cut off before it ended. Be brief: call a tool, or give your answer."


async def rollout(
    agent: Agent,
    question: Question,
    trajectory_id: str = "",
    number: int = 0,
    log: Log | None = None,
    stored: list[dict] | None = None,
) -> Outcome:
    """One run. `log` gets a row for every call of a model or a tool; `stored` holds those that an earlier
    attempt at this run has made, which are played back instead of being made again.
    """
    trajectory = open_trajectory(agent, question, trajectory_id, number)
    run = Run(agent, question, trajectory, log or (lambda row: None), stored or [])
    limits = agent.limits
    for round_number in range(limits.max_calls):
        run.rounds = round_number
        ended = await make_room(run) or run.out_of_budget()
        if ended:
            return run.finish(ended)
        is_forced = limits.force_answer and round_number == limits.max_calls - 1
        if is_forced:
            trajectory.messages.append(Message(role="user", content=LAST_CALL))
        try:
            reply = await ask_explorer(run)
        except EndpointError as error:
            run.error = error
            return run.finish("endpoint_error")
        ended = await take_turn(run, reply)
        trajectory.forced = is_forced and ended == "answer"
        if ended:
            return run.finish(ended)
    return run.finish("call_limit")


def open_trajectory(agent: Agent, question: Question, trajectory_id: str, number: int) -> Trajectory:
    """A run before its first call: the system turn, if there is one, and the question."""
    trajectory = Trajectory(
        id=trajectory_id,
        question_id=question.id,
        rollout=number,
        question=question.question,
        constraints=question.constraints,
        language=question.language,
        answer=question.answer,
        head=2 if agent.system else 1,
        messages=[Message(role="system", content=agent.system)] if agent.system else [],
        paradigm=agent.paradigm,
        source="rollout",
    )
    trajectory.messages.append(Message(role="user", content=trajectory.task))
    return trajectory


async def ask_explorer(run: Run) -> Reply:
    """The next turn: played back, or asked for and stored. Raises EndpointError."""
    row = run.journal.recall("explorer", "")
    if row:
        reply = stored_reply(row)
    else:
        try:
            reply = await run.agent.explorer(run.question, run.visible())
        except EndpointError as error:
            run.journal.write("explorer", "", error_row(error))
            raise
        run.journal.write("explorer", "", answer_row(reply))
    run.spend(reply)
    return reply


async def take_turn(run: Run, reply: Reply) -> Termination | None:
    """Put the model's turn into the trace and carry out its calls; without any, it is the answer."""
    messages, message = run.trajectory.messages, reply.message
    messages.append(message)
    # Every call gets its result, also beside an unreadable one: histories are cut where none is open.
    for call in message.tool_calls:
        text = await call_tool(run, call.function.name, call.function.arguments)
        messages.append(Message(role="tool", content=text, tool_call_id=call.id))
    problem = reply.problem or (None if message.tool_calls else _problem_in(reply))
    run.problems_in_a_row = run.problems_in_a_row + 1 if problem else 0
    if problem:
        if run.problems_in_a_row >= run.limits.max_problems:
            return "unparsable_call"
        messages.append(Message(role="user", content=problem))
        return None
    if message.tool_calls:
        return None
    run.trajectory.prediction = last_answer(messages) or message.content.strip()
    return "answer"


async def call_tool(run: Run, name: str, arguments: str) -> str:
    """The tool's text, or why it cannot be had: the model can mend its call."""
    key = f"{name}({arguments})"
    row = run.journal.recall("tool", key)
    if row:
        return row["result"]
    failed: dict = {}
    try:
        text = await run.agent.tools.call(name, arguments)
    except (ValueError, OSError) as error:
        text, failed = f"Error: {error}", {"failed": True}
    run.journal.write("tool", key, failed | {"result": text})
    return text


def _problem_in(reply: Reply) -> str | None:
    if reply.finish_reason == "length":
        return CUT_TURN
    return None if reply.message.content.strip() else NO_TURN
