"""Recording many rollouts at once, against a bare loop that sends the same requests through the same client.

    python benchmarks/recorder.py

256 rollouts run against an endpoint on loopback that takes 2 seconds for each answer; the bare loop knows all
requests in advance and does nothing but send them. The bound is the latency alone. Both ways run in turn, the
ratio is the median of the passes, with the lowest and the highest beside it. The cases add what a round costs
us, and what counting tokens costs at the 10th and at the 100th round.
"""

import argparse
import asyncio
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from condensery.endpoint import Endpoint
from condensery.message import FunctionCall, Message, ToolCall
from condensery.reply import Reply
from condensery.tokens import RequestCounter, Tokenizer
from data_synthesis.agent import Agent, Limits
from data_synthesis.explorer import EndpointExplorer, to_chat
from data_synthesis.question import Question
from data_synthesis.recorder import make_here, plan_jobs, record
from data_synthesis.rollout import rollout

LATENCY_SECONDS, NUM_ROUNDS, NUM_PASSES = 2.0, 6, 5
SCHEMAS = [{"type": "function", "function": {"name": "search", "description": "", "parameters": {}}}]
PAGE = "The mill of Harrow Bay was built in 1843 of grey stone and stands by the river. " * 8


class Pages:
    schemas = SCHEMAS

    async def call(self, name: str, arguments: str) -> str:
        return PAGE


def answer_to(body: dict) -> dict:
    """A search in each of the first rounds, then the answer."""
    num_rounds = sum(turn["role"] == "assistant" for turn in body["messages"])
    function = {"name": "search", "arguments": json.dumps({"query": [f"mill {num_rounds}"]})}
    calls = [{"id": f"call_{num_rounds}", "type": "function", "function": function}]
    message = {"role": "assistant", "content": "Look further.", "tool_calls": calls}
    if num_rounds == NUM_ROUNDS - 1:
        message = {"role": "assistant", "content": "<answer>1843</answer>"}
    return {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}


async def serve() -> None:
    """An endpoint in a process of its own; at the end it prints the CPU seconds it took."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
            body = json.loads(await reader.readexactly(length))
            await asyncio.sleep(LATENCY_SECONDS)
            text = json.dumps(answer_to(body)).encode()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n")
            writer.write(b"Content-Length: %d\r\n\r\n" % len(text) + text)

    async def ignore_end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await handle(reader, writer)
        except asyncio.IncompleteReadError:  # the client is done
            writer.close()

    server = await asyncio.start_server(ignore_end, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    print(usage.ru_utime + usage.ru_stime, flush=True)


class Remembering(EndpointExplorer):
    """Keeps each request, for the bare loop."""

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint, "tools", SCHEMAS)
        self.requests: dict[str, list[list[dict]]] = {}

    async def __call__(self, question: Question, messages: list[Message]) -> Reply:
        self.requests.setdefault(question.id, []).append([to_chat(message) for message in messages])
        return await super().__call__(question, messages)


async def record_all(explorer: EndpointExplorer, num_rollouts: int) -> None:
    agent = Agent(explorer, Pages(), limits=Limits(), system="You search.")
    questions = [Question(id=f"q{n}", question=f"When was mill {n} built?") for n in range(num_rollouts)]
    with tempfile.TemporaryDirectory() as directory:
        await record(make_here(agent), plan_jobs(questions, 1, {}), Path(directory), [], num_rollouts)
        rows = (Path(directory) / "trajectories.jsonl").read_text().splitlines()
        assert len(rows) == num_rollouts and all('"termination": "answer"' in row for row in rows)
    await explorer.endpoint.close()


async def send_all(endpoint: Endpoint, requests: dict[str, list[list[dict]]]) -> None:
    async def send(messages: list[list[dict]]) -> None:
        for request in messages:
            await endpoint.chat(request, SCHEMAS)

    await asyncio.gather(*map(send, requests.values()))
    await endpoint.close()


async def race(url: str, num_rollouts: int) -> list[tuple[float, float]]:
    """Seconds of (ours, the bare loop) in each pass; one before them is for the requests alone."""
    endpoint = Endpoint(url, "m", max_concurrency=num_rollouts)
    remembering = Remembering(endpoint)
    await record_all(remembering, num_rollouts)
    passes = []
    for _ in range(NUM_PASSES):
        started = time.perf_counter()
        await record_all(EndpointExplorer(endpoint, "tools", SCHEMAS), num_rollouts)
        ended = time.perf_counter()
        await send_all(endpoint, remembering.requests)
        passes.append((ended - started, time.perf_counter() - ended))
    return passes


def round_cost(num_rounds: int) -> float:
    """CPU milliseconds a round of a rollout whose explorer and tools cost nothing, files not counted."""

    async def explore(question: Question, messages: list[Message]) -> Reply:
        number = sum(message.role == "assistant" for message in messages)
        if number == num_rounds - 1:
            return Reply(Message(role="assistant", content="<answer>1843</answer>"))
        call = ToolCall(id=f"call_{number}", function=FunctionCall(name="search", arguments='{"query": "m"}'))
        return Reply(Message(role="assistant", content="Look further.", tool_calls=[call]))

    async def cost() -> float:
        agent = Agent(explore, Pages(), limits=Limits(window_tokens=10**7, max_calls=num_rounds))
        started = time.process_time()
        await rollout(agent, Question(id="q", question="When?"))
        return 1000 * (time.process_time() - started) / num_rounds

    return statistics.median(asyncio.run(cost()) for _ in range(NUM_PASSES))


class Watched:
    """A tokenizer that counts the characters it is given."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer, self.num_characters = tokenizer, 0

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        self.num_characters += len(text)
        return self.tokenizer.encode(text, add_special_tokens=add_special_tokens)

    def apply_chat_template(self, conversation: list[dict], **settings: object) -> object:
        return self.tokenizer.apply_chat_template(conversation, **settings)


def counting_cost(num_rounds: int) -> dict:
    """What the last of so many rounds costs: characters that are tokenized, and CPU milliseconds."""
    from modeling.loading import load_tokenizer

    watched = Watched(load_tokenizer("smollm2-135m-instruct"))
    counter = RequestCounter(watched)
    messages = [Message(role="user", content="When was the mill built?")]
    for number in range(num_rounds):
        messages += [
            Message(role="assistant", content=f"Look, {number}."),
            Message(role="user", content=PAGE),
        ]
        before, started = watched.num_characters, time.process_time()
        num_tokens = counter.count(messages)
        cost = 1000 * (time.process_time() - started)
    return {
        "history_tokens": num_tokens,
        "characters_tokenized": watched.num_characters - before,
        "milliseconds": round(cost, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--num_rollouts", type=int, default=256)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        asyncio.run(serve())
        return
    command = [sys.executable, __file__, "--serve"]
    started = time.perf_counter()
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin and server.stdout
        url = f"http://127.0.0.1:{int(server.stdout.readline())}/v1"
        passes = asyncio.run(race(url, arguments.num_rollouts))
        wall = time.perf_counter() - started
        server.stdin.close()
        server_seconds = float(server.stdout.readline())
    ours, bare = (statistics.median(seconds) for seconds in zip(*passes, strict=True))
    ratios = sorted(bare / ours for ours, bare in passes)
    cases: list[dict] = [
        {"case": "ours", "seconds": round(ours, 2)},
        {"case": "bare loop", "seconds": round(bare, 2)},
        {"case": "server", "share_of_one_cpu": round(server_seconds / wall, 3)},
    ]
    for num_rounds in (10, 100):
        cases.append(
            {"case": f"a round of {num_rounds}", "cpu_milliseconds": round(round_cost(num_rounds), 2)}
        )
        cases.append({"case": f"counting tokens at round {num_rounds}"} | counting_cost(num_rounds))
    result = {
        "benchmark": "recorder",
        "rival": "a bare loop through the same client",
        "ratio": round(statistics.median(ratios), 3),
        "interval": [round(ratios[0], 3), round(ratios[-1], 3)],
        "bound": round(bare / (LATENCY_SECONDS * NUM_ROUNDS), 3),
        "cases": cases,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
