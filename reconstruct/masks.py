"""Which blocks of a history are hidden, and the history with markers in their places."""

import random

from reconstruct.blocks import Block, join_blocks


def draw_masks(num_blocks: int, ratio: float, num_masks: int, seed: int | str) -> list[list[int]]:
    """`num_masks` sorted lists of block indices, each of about `ratio` x `num_blocks`, equal for equal seeds.

    At least one block is hidden and, of several, at least one is not; a history of one block is hidden whole.
    The blocks are dealt out without replacement, so that each is hidden about equally often: at a ratio of
    0.5 the second mask is the complement of the first.
    """
    num_hidden = max(1, min(round(ratio * num_blocks), num_blocks - 1))
    rng = random.Random(seed)
    masks: list[list[int]] = []
    dealt: list[int] = []
    while len(masks) < num_masks:
        if len(dealt) < num_hidden:
            dealt = rng.sample(range(num_blocks), num_blocks)
        masks.append(sorted(dealt[:num_hidden]))
        dealt = dealt[num_hidden:]
    return masks


def marker(number: int) -> str:
    """Stands for the hidden block `number`, counted from 1 in order of the mask. `condensery.prompt.escape`
    keeps content from looking like it."""
    return f'<missing id="{number}"/>'


def masked_history(blocks: list[Block], mask: list[int]) -> str:
    """The history with a marker for each hidden block; a mask of all blocks leaves markers only."""
    shown = list(blocks)
    for number, index in enumerate(mask, start=1):
        shown[index] = blocks[index].model_copy(update={"text": marker(number)})
    return join_blocks(shown)
