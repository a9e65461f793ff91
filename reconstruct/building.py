"""From a context to an instance: its blocks, and the masks it is tested with."""

from reconstruct.blocks import Block, blocks_of, turn_blocks
from reconstruct.contexts import Context, MeasuredRun, Unused
from reconstruct.instance import Instance
from reconstruct.instances_config import InstancesConfig
from reconstruct.masks import draw_masks

MIN_BLOCK_TOKENS = 16


def build_instance(
    measured: MeasuredRun, context: Context, config: InstancesConfig, seen: set[str]
) -> Instance | Unused:
    """`seen` holds the ids of instances that were built before, and gets this one's."""
    compaction = measured.compaction(context)
    if compaction.id in seen:
        detail = f"the same history as instance {compaction.id}"
        return measured.unused(context.start, context.context_tokens, "duplicate", detail)
    seen.add(compaction.id)
    most = measured.history_tokens(context) // config.min_blocks
    block_tokens = max(MIN_BLOCK_TOKENS, min(config.block_tokens, most))
    blocks = blocks_of(compaction, block_tokens, measured.count)
    while len(blocks) < config.min_blocks and block_tokens > MIN_BLOCK_TOKENS:
        block_tokens = max(MIN_BLOCK_TOKENS, block_tokens * 3 // 4)
        blocks = blocks_of(compaction, block_tokens, measured.count)
    if len(blocks) < config.min_blocks:
        detail = f"{len(blocks)} blocks of about {block_tokens} tokens, fewer than --min_blocks"
        return measured.unused(context.start, context.context_tokens, "few_blocks", detail)
    blocks = [*earlier_blocks(measured, context, block_tokens, config.earlier_tokens), *blocks]
    seed = f"{config.seed}:{compaction.id}"
    return Instance(
        id=compaction.id,
        compaction=compaction,
        context_tokens=context.context_tokens,
        blocks=blocks,
        masks=draw_masks(len(blocks), config.mask_ratio, config.num_masks, seed),
        source=str(measured.source),
        language=measured.run.language,
    )


def earlier_blocks(
    measured: MeasuredRun, context: Context, block_tokens: int, earlier_tokens: int
) -> list[Block]:
    """Turns that expired before the context's last summary was written, the newest, as old memory."""
    head, start = measured.run.head, context.start
    starts = [p for p in measured.closed if head <= p < start and measured.tokens(p, start) <= earlier_tokens]
    if not starts:
        return []
    turns = measured.run.messages[starts[0] : start]
    blocks = turn_blocks(turns, block_tokens, measured.count)
    return [block.model_copy(update={"kind": "memory"}) for block in blocks]
