"""What a training run says: one sample before it, then a line per logged step with rate and time left."""

import os
import sys
import time

import datasets
import transformers
from transformers import (
    PreTrainedTokenizerBase,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)

from modeling.chat_template import RenderedPair, supervised_text

SHOWN = (
    *("loss", "eval_loss", "grad_norm", "learning_rate", "mean_token_accuracy", "aux_loss"),
    *("eval_fact_recall", "eval_parsed"),
    *("completions/mean_length", "completions/clipped_ratio"),  # of what a student writes while it trains
    *("reward", "reward_std", "frac_reward_zero_std", "quality", "parsed", "fact_recall", "entropy"),
    *("eval_reward", "eval_quality", "eval_completions/mean_length", "eval_unsupported"),
)


class ProgressLines(TrainerCallback):
    """`step 10/60  loss 1.23  learning_rate 5e-05  6.1 s/step  5.1 min left`, on stderr."""

    def __init__(self) -> None:
        self.first_step, self.start = 0, 0.0

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
    ) -> None:
        self.first_step, self.start = state.global_step, time.monotonic()

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
    ) -> None:
        if not state.is_world_process_zero or not state.log_history:
            return
        logs = state.log_history[-1]
        # TRL logs what was counted over nothing (the deviation of one reward) as None
        values = [f"{key} {logs[key]:.4g}" for key in SHOWN if logs.get(key) is not None]
        if not values:
            return
        done = max(state.global_step - self.first_step, 1)
        seconds = (time.monotonic() - self.start) / done
        left = seconds * (state.max_steps - state.global_step) / 60
        rate = [f"{seconds:.1f} s/step", f"{left:.1f} min left"]
        say("  ".join([f"step {state.global_step}/{state.max_steps}", *values, *rate]))


def say(line: str) -> None:
    """On stderr, once for all processes."""
    if os.environ.get("RANK", "0") == "0":
        print(line, file=sys.stderr, flush=True)


def quiet_unless_terminal() -> None:
    """The bars of transformers and datasets fill a log file with carriage returns."""
    if not sys.stderr.isatty():
        transformers.utils.logging.disable_progress_bar()
        datasets.disable_progress_bars()


def show_sample(tokenizer: PreTrainedTokenizerBase, pair: RenderedPair, max_characters: int = 1200) -> str:
    """One row as the model sees it, the supervised part between marks, a long prompt shortened."""
    prompt = show_prompt(tokenizer, pair, max_characters)
    return f"{prompt}>>> supervised >>>{supervised_text(tokenizer, pair)}<<< end <<<"


def show_prompt(tokenizer: PreTrainedTokenizerBase, pair: RenderedPair, max_characters: int = 1200) -> str:
    """A prompt as the model sees it, a long one shortened in the middle."""
    return show_ids(tokenizer, pair.prompt_ids, max_characters)


def show_ids(tokenizer: PreTrainedTokenizerBase, ids: list[int], max_characters: int = 1200) -> str:
    """The same from tokens alone."""
    prompt = str(tokenizer.decode(ids, clean_up_tokenization_spaces=False))
    if len(prompt) > max_characters:
        half = max_characters // 2
        prompt = f"{prompt[:half]}\n[... {len(prompt) - 2 * half} characters not shown ...]\n{prompt[-half:]}"
    return prompt
