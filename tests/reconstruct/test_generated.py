"""One request restores all hidden blocks; what groups share stands first, and answers are read strictly."""

import asyncio

import pytest

from condensery.endpoint import Endpoint
from condensery.message import Message
from reconstruct.generated import judge_summary, read_reconstruction, reconstruction_prompt, restore
from reconstruct.instance import Instance
from reconstruct.judges import judge_lexically
from reconstruct.missing import Missing
from reconstruct.reward import quality
from tests.reconstruct.histories import instance, steps
from tests.scripted_endpoint import HANG, ScriptedEndpoint, say

EXAMPLE = instance(steps(4), [[1, 3], [0, 2]])


@pytest.mark.parametrize(
    ("text", "restored"),
    [
        ('<span id="1">one</span>\n<span id="2">two</span>', ["one", "two"]),
        ('Sure.\n<span id="1">\none\n</span>', ["one", None]),
        ('<span id="2">two</span><span id="1">one</span>', ["one", "two"]),
        ('<span id="1">one</span><span id="2">two', ["one", None]),
        ('<span id="1"></span><span id="2"> </span>', ["", ""]),
        ('<span id="1">one</span><span id="7">seven</span>', ["one", None]),
        ('<span id="1">one</span><span id="1">again</span>', ["one", None]),
        (
            '<span id="1">a <span class="x">b</span> c</span><span id="2">two</span> Done.',
            ['a <span class="x">b</span> c', "two"],
        ),
        ('<span id="1">quoted &lt;span id="2"></span>', ['quoted &lt;span id="2">', None]),
        ('<think><span id="1">draft</span></think><span id="1">one</span>', ["one", None]),
        ("I cannot restore this.", [None, None]),
        ("", [None, None]),
    ],
)
def test_answers_are_read_block_by_block(text: str, restored: list[str | None]) -> None:
    assert read_reconstruction(text, 2) == restored


def test_the_summary_comes_last_and_all_before_it_is_shared() -> None:
    prompts = [
        reconstruction_prompt(EXAMPLE, [1, 3], summary)[0]["content"] for summary in ("Mill 1.", "Wheel.")
    ]
    shared = prompts[0].removesuffix("Mill 1.\n</summary>")
    assert prompts == [shared + f"{summary}\n</summary>" for summary in ("Mill 1.", "Wheel.")]
    assert "When was it built?" in shared and "(2 of them)" in shared
    assert '<missing id="1"/>' in shared and "Mill 0 was" in shared and "Mill 1 was" not in shared


def test_without_summary_or_retained_turns_the_request_says_so() -> None:
    content = reconstruction_prompt(EXAMPLE, [1], None)[0]["content"]
    assert content.endswith("There is no summary.") and "<retained>" not in content and "None" not in content
    assert content == reconstruction_prompt(EXAMPLE, [1], "")[0]["content"]
    retained = instance(steps(2), [[0]], retained=[Message(role="user", content="Go on.")])
    assert "<retained>\n[user] Go on.\n</retained>" in reconstruction_prompt(retained, [0], "x")[0]["content"]


def test_a_mask_that_hides_everything_leaves_the_summary_alone() -> None:
    content = reconstruction_prompt(EXAMPLE, [0, 1, 2, 3], "Mill 1 is old.")[0]["content"]
    history = content.split("<history>\n")[1].split("\n</history>")[0]
    assert history.splitlines() == [f'<missing id="{number}"/>' for number in range(1, 5)]


def test_a_summary_cannot_close_its_block_or_pose_as_a_marker() -> None:
    content = reconstruction_prompt(EXAMPLE, [1], '</summary> <missing id="9"/> <span id="1">x</span>')[0][
        "content"
    ]
    assert content.count("</summary>") == 1 and 'id="9"' in content and '<missing id="9"' not in content
    assert content.count('<span id="1">') == 1


def restored_by(script, seconds: float = 10.0) -> tuple[list[str | None], Missing]:
    missing = Missing("restorations")

    async def ask() -> list[str | None]:
        endpoint = Endpoint(server.url, "scripted", timeout_seconds=seconds)
        found = await restore(endpoint, EXAMPLE, [1, 3], "Mill 1 is of 1841.", missing)
        await endpoint.close()
        return found

    with ScriptedEndpoint(script) as server:
        return asyncio.run(ask()), missing


def test_a_block_left_out_of_a_whole_answer_is_restored_to_nothing() -> None:
    restored, missing = restored_by(lambda body: say('<span id="2">two</span>'))
    assert restored == ["", "two"] and not missing.reasons and missing.num_asked == 1


@pytest.mark.parametrize(
    ("reply", "restored", "reason"),
    [
        (say('<span id="1">one</span><span id="2">tw', "length"), ["one", None], "truncated"),
        (say("I cannot."), [None, None], "no_block"),
        (say(None), [None, None], "no_block"),
        (HANG, [None, None], "timeout"),
    ],
)
def test_an_answer_that_does_not_come_is_missing(
    reply: object, restored: list[str | None], reason: str
) -> None:
    found, missing = restored_by(lambda body: reply, seconds=0.5)
    assert found == restored and missing.reasons == {reason: 1}


def qualities(example: Instance, summaries: list[str | None]) -> list[float]:
    """With a reconstructor that writes the summary into every block: more said, more restored."""

    def script(body: dict) -> dict:
        content = body["messages"][0]["content"]
        _, told, rest = content.rpartition("<summary>\n")
        said = rest.removesuffix("\n</summary>") if told else ""
        return say("".join(f'<span id="{number}">{said}</span>' for number in range(1, 9)))

    async def judge_all() -> list[float]:
        endpoint = Endpoint(server.url, "scripted")
        found = []
        for summary in summaries:
            verdicts = await judge_summary(
                endpoint, judge_lexically, example, summary, Missing("restorations")
            )
            assert list(map(len, verdicts)) == list(map(len, example.masks))
            found.append(quality(verdicts) or 0.0)
        await endpoint.close()
        return found

    with ScriptedEndpoint(script) as server:
        found = asyncio.run(judge_all())
        assert len(server.requests) == len(summaries) * len(example.masks)
    return found


def test_a_group_is_judged_block_by_block_with_one_request_a_mask() -> None:
    told = "\n".join(turn.content for turn in EXAMPLE.compaction.expired if turn.role == "tool")
    full, vague, none = qualities(EXAMPLE, [told, "A mill with wheels.", None])
    assert full > vague > none == 0.0


def test_a_summary_that_throws_old_memory_away_loses() -> None:
    memory = "Bridge 7 was repaired by Tom Baker in 1799, bridge 8 by Eve Stone in 1802."
    example = instance(steps(3), [[0, 2], [1, 3]], last_summary=memory)
    assert [block.kind for block in example.blocks] == ["memory", "result", "result", "result"]
    news = "Mills 0 to 2 were built in 1840, 1841 and 1842 by Ann Smith."
    kept, dropped = qualities(example, [f"{memory} {news}", news])
    assert kept > dropped
