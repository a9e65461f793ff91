"""TRL's DistillationTrainer on prompts that are tokens already.

The student writes a summary y of a prompt x, and the loss of each token is a divergence between the student's
and the teacher's next-token distribution after (x, y up to it): reverse KL by default, beta 1 of the
generalised Jensen-Shannon divergence (Agarwal et al., "On-Policy Distillation of Language Models",
arXiv 2306.13649, equations 1 and 4).
"""

from typing import Any

from trl import DistillationTrainer

from modeling.sampling import EpochOrder


class OnPolicyTrainer(EpochOrder, DistillationTrainer):
    """`train_dataset` and `eval_dataset`: rows of one column, `prompt`, the token ids of a prompt."""

    def _tokenize_prompts(self, prompts: list[list[int]]) -> tuple[list[list[int]], None, dict[str, Any]]:
        """TRL would render messages here; ours were rendered as a server does, and checked."""
        return prompts, None, {}
