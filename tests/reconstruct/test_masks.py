"""Masks are equal for equal seeds, hide some and not all, and their markers stand in no content."""

import re

import pytest

from condensery.message import Message
from condensery.prompt import escape, unescape
from reconstruct.blocks import turn_blocks
from reconstruct.masks import draw_masks, marker, masked_history
from tests.reconstruct.histories import call, result, steps, words


@pytest.mark.parametrize("num_blocks", [2, 3, 8, 31])
@pytest.mark.parametrize("ratio", [0.01, 0.25, 0.5, 0.75, 0.99])
def test_never_all_and_never_none(num_blocks: int, ratio: float) -> None:
    for mask in draw_masks(num_blocks, ratio, 5, seed=f"{num_blocks}"):
        assert mask == sorted(set(mask)) and 0 < len(mask) < num_blocks and mask[-1] < num_blocks
        assert len(mask) == max(1, min(round(ratio * num_blocks), num_blocks - 1))


def test_seeded_and_dealt_out_evenly() -> None:
    assert draw_masks(10, 0.5, 4, "a") == draw_masks(10, 0.5, 4, "a") != draw_masks(10, 0.5, 4, "b")
    first, second, third, _ = draw_masks(10, 0.5, 4, 0)
    assert sorted(first + second) == list(range(10)) and third not in (first, second)


def test_a_history_of_one_block_is_hidden_whole() -> None:
    assert draw_masks(1, 0.5, 2, 0) == [[0], [0]]


def test_the_history_has_a_numbered_marker_for_each_hidden_block() -> None:
    blocks = turn_blocks(steps(4), 20, words)
    assert len(blocks) == 4
    assert masked_history(blocks, [1, 3]) == "\n".join([blocks[0].text, marker(1), blocks[2].text, marker(2)])
    assert masked_history(blocks, []) == "\n".join(block.text for block in blocks)


def test_a_mask_of_all_leaves_markers_only() -> None:
    assert masked_history(turn_blocks(steps(2), 20, words), [0, 1]) == f"{marker(1)}\n{marker(2)}"


def test_within_a_line_a_marker_stands_in_the_line() -> None:
    line = " ".join(f"Sentence {number} ends here." for number in range(40))
    blocks = turn_blocks([call(1), result(1, line)], 16, words)
    shown = masked_history(blocks, [2])
    assert f"{blocks[1].text}{marker(1)}{blocks[3].text}" in shown


@pytest.mark.parametrize("tag", [marker(1), "<missing>", '<MISSING  id="3">', "</missing>", '<span id="2">'])
def test_content_that_looks_like_our_markers_is_defused(tag: str) -> None:
    message = Message(role="tool", content=f"see {tag} there", tool_call_id="c1")
    blocks = turn_blocks([call(1), message, *steps(2)], 12, words)
    shown = masked_history(blocks, [len(blocks) - 1])
    assert re.findall(r"<missing[^>]*>|<span id[^>]*>", shown, re.IGNORECASE) == [marker(1)]
    assert unescape(escape(tag)) == tag


def test_other_markup_is_left_alone() -> None:
    for text in ("<span class='x'>a</span>", "<missingno>", 'a < b, <div id="1">', "<span>"):
        assert escape(text) == text
