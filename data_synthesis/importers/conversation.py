"""Rows with one list of turns: the OpenAI chat shape, and the text of WebDancer, ReSum and SWE-smith."""

from condensery.files.jsonl import to_record
from condensery.message import Message
from condensery.trajectory import Cut, Trajectory, content_id
from data_synthesis.importers.atif import is_atif, turns_of_steps
from data_synthesis.importers.blocks import has_blocks, split_blocks
from data_synthesis.importers.langchain import is_langchain, read_langchain
from data_synthesis.importers.mini_swe_agent import is_mini_swe_agent, turns_of_fences
from data_synthesis.importers.react import is_react, split_react
from data_synthesis.importers.reset_turn import SUMMARY_START
from data_synthesis.importers.task import first_text, language_of, task_in, termination_of
from data_synthesis.importers.text_protocol import is_response, last_answer, read_responses, read_text_call
from data_synthesis.importers.turns import Notes, pair_results, read_turns

TURN_KEYS = ("messages", "conversations", "conversation", "turns")


def turns_of(row: dict) -> object | None:
    return next((row[key] for key in TURN_KEYS if row.get(key)), None)


def read_conversation(row: dict, notes: Notes) -> Trajectory:
    """A trajectory from a row with a list of turns. Raises ValueError when a turn cannot be read."""
    turns = chat_turns(row, notes)
    messages = read_turns(turns, notes)
    if not any(message.tool_calls for message in messages):
        messages = pair_results(from_text(messages, notes), notes)
    messages, cuts = take_summaries(messages, notes)
    prediction = first_text(row.get("prediction")) or last_answer(messages)
    return trajectory_of(
        messages,
        question=first_text(row.get("question")),
        question_id=row.get("question_id") or row.get("instance_id"),
        answer=first_text(row.get("answer")),
        cuts=cuts,
        prediction=prediction,
        termination=termination_of(row.get("termination"), prediction is not None),
        verdict={"correct": True, "incorrect": False}.get(str(row.get("trajectory_correctness")).lower()),
    )


def chat_turns(row: dict, notes: Notes) -> object:
    """The turns of a row in the chat shape, whatever library wrote them; as they are where none is known.

    A turn that held several things becomes several; how many came to it is counted.
    """
    if is_atif(row):
        steps = turns_of_steps(row)
        notes["split_turn"] += len(steps) - len(row["steps"])
        return steps
    turns = turns_of_fences(row) if is_mini_swe_agent(row) else turns_of(row)
    if not isinstance(turns, list):
        return turns
    turns = [read_langchain(turn) if is_langchain(turn) else turn for turn in turns]
    num_turns = len(turns)
    if has_blocks(turns):
        turns = split_blocks(turns)
    elif any(map(is_react, turns)):
        turns = split_react(turns)
    notes["split_turn"] += len(turns) - num_turns
    # In a key of its own: Anthropic, ShareGPT.
    return [{"role": "system", "content": row["system"]}, *turns] if row.get("system") else turns


def from_text(messages: list[Message], notes: Notes) -> list[Message]:
    """Take calls out of the text of assistant turns, and results out of the user turns after them."""
    translated: list[Message] = []
    num_calls = 0
    expects_result = False
    for message in messages:
        if message.role == "assistant":
            expects_result = "<function=" in message.content
            message = read_text_call(message, notes)
            num_calls = len(message.tool_calls)
        elif message.role == "user" and is_response(message.content):
            translated += read_responses(message, num_calls, notes)
            continue
        elif message.role == "user" and expects_result and num_calls:
            message = message.model_copy(update={"role": "tool"})
        translated.append(message)
    return translated


def take_summaries(messages: list[Message], notes: Notes) -> tuple[list[Message], list[Cut]]:
    """A logged compaction is a cut with its summary, not a turn: what came before is what it summarized."""
    kept: list[Message] = []
    cuts: list[Cut] = []
    for message in messages:
        _, found, rest = message.content.partition(SUMMARY_START)
        summary = rest.partition("\nSummary:")[2].strip() if found and message.role == "user" else ""
        if summary and any(earlier.role == "assistant" for earlier in kept):
            notes["logged_compaction"] += 1
            cuts.append(Cut(position=len(kept), summary=summary, author="log"))
        else:
            kept.append(message)
    return kept, cuts


def trajectory_of(
    messages: list[Message],
    question: str | None,
    question_id: object,
    head: int | None = None,
    **fields: object,
) -> Trajectory:
    """A trajectory named by the hash of its content; the turns up to the first user turn are its head."""
    first_user = next((p for p, message in enumerate(messages) if message.role == "user"), None)
    if first_user is None:
        raise ValueError("no user turn: the task is not known")
    head = head or first_user + 1
    question = question or task_in(messages[head - 1].content)
    if not question:
        raise ValueError("the first user turn has no text: the task is not known")
    return to_record(
        {
            "id": content_id({"question": question, "messages": [message.to_chat() for message in messages]}),
            "question_id": str(question_id) if question_id else content_id(question),
            "question": question,
            "language": language_of(question),
            "head": head,
            "messages": messages,
        }
        | fields,
        Trajectory,
    )
