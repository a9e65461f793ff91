"""Rows joined into one sequence (`--padding_free`) must not see each other: tested on the model itself.

Attention keeps rows apart by the positions, which start again with each row, or by their lengths, where its
kernel knows of either. A leak shows in no loss curve. (Layers with a recurrent state need a kernel that takes
the lengths; transformers refuses them without.)
"""

from collections.abc import Callable

import torch
from torch import nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

# Of the hidden states' size. Rounding moves a mixture's by some 1e-3 in bfloat16, a leak by a tenth or more.
MAX_LEAK = 1e-2
Row = dict[str, list[int]]


@torch.no_grad()  # FSDP2 keeps buffers of a forward: made in inference mode, they could not train afterwards
def leak_between_rows(
    model: nn.Module, collate: Callable[[list[Row]], dict], first: Row, second: Row
) -> float:
    """How far the last row's hidden states move when the row before it changes, relative to their size."""
    backwards = {key: values[::-1] for key, values in first.items()}
    device = next(model.parameters()).device
    was_training = model.training
    model.eval()
    ends = []
    for before in (first, backwards):
        batch = {key: value for key, value in collate([before, second]).items() if key != "labels"}
        batch = {key: value.to(device) if torch.is_tensor(value) else value for key, value in batch.items()}
        output = model(**batch, output_hidden_states=True, use_cache=False, logits_to_keep=1)
        ends.append(output.hidden_states[-1][0, len(first["input_ids"]) :].float())  # (T, D)
    model.train(was_training)
    return ((ends[0] - ends[1]).norm() / ends[0].norm()).item()


class CheckRowsApart(TrainerCallback):
    """Stops before the first step if rows of a batch see each other."""

    def __init__(self, collate: Callable[[list[Row]], dict], rows: list[Row]) -> None:
        self.collate, self.rows = collate, rows

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
    ) -> None:
        model = kwargs["model"]
        assert isinstance(model, nn.Module)
        if not (leak := leak_between_rows(model, self.collate, *self.rows)) <= MAX_LEAK:
            raise ValueError(
                f"--padding_free: rows of a batch see each other in this model (its hidden states move by "
                f"{leak:.0%} when the row before changes); leave it out, or take an --attn_implementation "
                "for rows of several lengths, such as flash_attention_2"
            )
