"""What an agent's model sees of its run: derived from the trace, so that what is stored is what was seen."""

import re

from condensery.message import Message
from condensery.prompt import escape
from condensery.trajectory import Border, Trajectory

# ReSum's q' = (q, s): one user turn that holds the question and the summary of all that went before.
RESUMED = {
    "en": "{task}\n\nThis summary stands for your earlier steps, which are gone. Go on from it:\n{summary}",
    "zh": "{task}\n\n以下摘要代替你此前的步骤（原文已移除），请据此继续：\n{summary}",
}
MEMORY = re.compile(r"<memory>(.*?)</memory>", re.DOTALL)  # what a MEM1 agent writes at each turn
MASKED = "[earlier result left out]"


def visible_messages(trajectory: Trajectory, upto: int | None = None) -> list[Message]:
    """What the model saw before it wrote turn `upto`; None: what it sees now.

    Everything, or from a border or an accepted cut on: the head (with its summary) and what came since.
    """
    upto = len(trajectory.messages) if upto is None else upto
    borders = [border for border in trajectory.borders if border.position <= upto]
    if borders:
        return seen_behind(trajectory, borders[-1], upto)
    accepted = [cut for cut in trajectory.cuts if cut.summary is not None and cut.taken_at <= upto]
    if not accepted:
        return trajectory.messages[:upto]
    *opening, user = trajectory.messages[: trajectory.head]
    form = RESUMED.get(trajectory.language, RESUMED["en"])
    summary = f"<summary>\n{escape(accepted[-1].summary or '')}\n</summary>"
    resumed = user.model_copy(update={"content": form.format(task=user.content, summary=summary)})
    return [*opening, resumed, *trajectory.messages[accepted[-1].position : upto]]


def seen_behind(trajectory: Trajectory, border: Border, upto: int) -> list[Message]:
    """The head and the turns from `border.start` on, old tool results as placeholders."""
    turns = trajectory.messages[border.start : upto]
    num_masked = max(0, border.masked_before - border.start)
    masked = [
        turn.model_copy(update={"content": MASKED}) if turn.role == "tool" else turn
        for turn in turns[:num_masked]
    ]
    return [*trajectory.messages[: trajectory.head], *masked, *turns[num_masked:]]
