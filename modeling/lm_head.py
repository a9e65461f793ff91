"""The loss of a short target behind a long prompt, without projecting the prompt onto the vocabulary.

TRL's fused head scores only supervised positions on GPUs, and every position elsewhere, so that an
accelerator which compiles by shape sees one shape. On a CPU that is half of a step for nothing: measured with
SmolLM2, 744 tokens of which 64 supervised, forward and backward on one core: 6.9 s before, 3.6 s after.
"""

import torch
from trl.kernels import chunked_logprob
from trl.trainer import utils


def score_supervised_positions_only() -> None:
    """Make TRL's fused head skip ignored positions on CPUs too. Losses and gradients stay what they are.

    Can go once TRL asks whether a device compiles by shape, instead of whether it has Triton.
    """
    has_triton = chunked_logprob._use_triton
    utils._use_triton = lambda device: torch.device(device).type == "cpu" or has_triton(device)
