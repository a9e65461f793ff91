"""The settings of `condensery grpo`: what TRL's GRPOConfig lacks, and what of it is refused."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from condensery.endpoint import is_url
from modeling.settings import UNUSED_ON_POLICY, RunArguments, common_problems, unused_settings

UNUSED_IN_GRPO = UNUSED_ON_POLICY | {
    "reward_weights": "there is one reward; its parts have weights of their own",
}


@dataclass
class GRPOArguments(RunArguments):
    """What TRL's GRPOConfig and ModelConfig lack."""

    train_file: Path = field(metadata={"help": "instances, from `condensery instances` (JSONL)"})
    prompt_template: str = field(default="compact_v1", metadata={"help": "a name, or the path of a file"})
    max_length: int = field(
        default=1024,
        metadata={"help": "tokens of a prompt together with --max_completion_length", "minimum": 1},
    )
    groups_per_step: int = field(
        default=6, metadata={"help": "contexts per optimizer step over all processes", "minimum": 1}
    )
    reward: Literal["likelihood", "generate"] = field(
        default="likelihood",
        metadata={
            "help": "likelihood: a frozen model scores the hidden blocks; generate: a model behind an "
            "endpoint restores them, and a judge compares"
        },
    )
    reconstructor: str = field(
        default="smollm2-135m-instruct",
        metadata={"help": "likelihood: a model; generate: the model's name at its endpoint"},
    )
    reconstructor_url: str | None = field(default=None, metadata={"help": "generate: the endpoint"})
    judge: str = field(
        default="lexical", metadata={"help": "generate: lexical, or a model's name at --judge_url"}
    )
    judge_url: str | None = field(default=None, metadata={"help": "generate: the judge's endpoint"})
    length_weight: float = field(default=0.1, metadata={"help": "lambda in R = Q - lambda |S| / L_max"})
    quality_floor: float | None = field(
        default=None, metadata={"help": "shortness pays only from this Q on; default: always, as published"}
    )
    contrast_weight: float = field(
        default=0.5, metadata={"help": "likelihood: share of true against wrong values in Q", "minimum": 0}
    )
    guards: bool = field(default=True, metadata={"help": "take off for what is invented, copied or repeated"})
    constraint_weight: float = field(
        default=1.0, metadata={"help": "how much more a block with a user's constraint counts", "minimum": 0}
    )
    max_missing: float = field(
        default=0.5, metadata={"help": "stop when more than this share of verdicts is missing", "minimum": 0}
    )


def grpo_problems(arguments: GRPOArguments, training: Any, model_config: Any) -> list[str]:
    """Settings that would change nothing, or with which a run would fail late."""
    problems = unused_settings(UNUSED_IN_GRPO, training, model_config)
    problems += common_problems(arguments, training, model_config)
    if training.max_completion_length is None or training.max_completion_length <= 0:
        problems.append(f"--max_completion_length is {training.max_completion_length}; it must be above 0")
    if training.num_generations < 2:
        problems.append(f"--num_generations is {training.num_generations}; a group needs 2 to compare")
    if training.steps_per_generation != 1:  # TRL fills it in, with the accumulation
        problems.append("--steps_per_generation and --generation_batch_size follow from --groups_per_step")
    if arguments.reward == "generate":
        named = {"--reconstructor_url": arguments.reconstructor_url}
        if arguments.judge != "lexical":
            named["--judge_url"] = arguments.judge_url
        for name, url in named.items():
            if url is None or not is_url(url):
                problems.append(f"{name} is {url}; --reward generate needs http://host:port/v1")
    return problems
