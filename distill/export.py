"""From a training run to a folder that stands alone, with proof that it holds what was trained.

    condensery export --checkpoint runs/sft --output_dir runs/export
    condensery export --checkpoint runs/sft --output_dir runs/export --vllm_python .venv-vllm/bin/python

The folder has merged weights (or, with --keep_adapter, the adapter), tokenizer, chat template, generation
config, and `condensery.json`: base, data, prompt template with its text, budgets, proof. It is written under
another name and renamed once the proof holds, through vLLM too where its Python is named.
"""

import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

PROG = "condensery export"


@dataclass
class ExportConfig:
    """What to export, and what to say about it."""

    checkpoint: Path = field(metadata={"help": "a finished run of `condensery sft`"})
    output_dir: Path = field(metadata={"help": "the new folder"})
    base: str | None = field(default=None, metadata={"help": "the base model; default: the run's"})
    prompt_template: str | None = field(
        default=None, metadata={"help": "name or file; default: the one of the run's pairs"}
    )
    dtype: Literal["auto", "bfloat16", "float16", "float32"] = field(
        default="auto",
        metadata={"help": "precision of the weights; auto: the trained (with LoRA: the base's)"},
    )
    keep_adapter: bool = field(
        default=False, metadata={"help": "do not merge: the folder holds the adapter, and names its base"}
    )
    max_shard_size: str = field(
        default="50GB", metadata={"help": "larger weights are split into several files"}
    )
    vllm_python: str | None = field(
        default=None, metadata={"help": "Python whose environment holds vLLM: prove what it serves, too"}
    )
    vllm_args: str = field(default="", metadata={"help": "more arguments of that vLLM, in one quoted string"})
    max_new_tokens: int = field(
        default=4096, metadata={"help": "budget of an answer, thinking included", "minimum": 1}
    )
    metrics: Path | None = field(
        default=None, metadata={"help": "report.json of an evaluation to take along"}
    )

    def __post_init__(self) -> None:
        if not re.fullmatch(r"\d+(\.\d+)?[KMGT]B", self.max_shard_size):
            raise ValueError(f"max_shard_size is {self.max_shard_size}; write it like 5GB or 500MB")
        if self.keep_adapter and self.dtype != "auto":
            raise ValueError(
                f"dtype is {self.dtype}, but keep_adapter copies the adapter as it was trained; leave out one"
            )


def main(argv: list[str] | None = None) -> int:
    from condensery.files.config import fail, parse_args
    from distill.serve import ServerError, end_on_signals

    config = parse_args(
        ExportConfig,
        argv=argv,
        prog=PROG,
        description="Write a trained summarizer as a folder that stands alone, and prove that it is the "
        "trained one.",
        example=f"{PROG} --checkpoint runs/sft --output_dir runs/export",
    )
    end_on_signals(status=1)
    try:
        export(config)
    except (OSError, ValueError, ServerError) as error:
        fail(PROG, error)
    return 0


def export(config: ExportConfig) -> None:
    """Write, reload, compare, and only then name the folder. ValueError if any step fails."""
    from condensery.files.export_card import NAME as CARD
    from condensery.files.run_directory import write_json
    from distill.export_weights import plan_export, write_and_prove
    from distill.serve import check_vllm
    from modeling.chat_template import thinking_switch
    from modeling.loading import load_tokenizer
    from modeling.progress import quiet_unless_terminal

    quiet_unless_terminal()
    run = read_run(config.checkpoint)
    if config.output_dir.exists() or config.output_dir.is_symlink():
        raise ValueError(f"{config.output_dir} exists; choose another --output_dir, or remove it")
    if config.vllm_python:
        check_vllm(config.vllm_python, "--vllm_python")
    card = describe(config, run)
    plan = plan_export(
        *(config.checkpoint, card["base"], config.dtype, config.keep_adapter, config.max_shard_size),
        run["config"],
    )
    card["enable_thinking"] = thinking_switch(load_tokenizer(str(config.checkpoint)), card["thinking"])
    with unnamed_folder(config.output_dir) as folder:
        proof, prompts = write_and_prove(plan, folder)
        proof.check()
        card |= {"proof": proof.to_dict(), "fixed_prompts": [prompt.model_dump() for prompt in prompts]}
        write_json(folder / CARD, card)
        if config.vllm_python:
            proof = replace(proof, served=served_gap(config, folder))
            proof.check()
            write_json(folder / CARD, card | {"proof": proof.to_dict()})
        folder.rename(config.output_dir)
    print(f"proof: {proof}", file=sys.stderr)
    print(f"exported {config.output_dir}; next: condensery serve {config.output_dir}", file=sys.stderr)


@contextmanager
def unnamed_folder(output_dir: Path) -> Iterator[Path]:
    """A path beside `output_dir`, on the same disk; what lies there is removed in the end, or, after a kill,
    by the next export."""
    from condensery.files.run_directory import only_writer

    temporary = output_dir.with_name(f".{output_dir.name}.part")
    try:
        temporary.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(
            f"cannot write under {output_dir.parent}: {error.strerror}; choose another --output_dir"
        ) from error
    with only_writer(temporary):
        shutil.rmtree(temporary / "model", ignore_errors=True)
        try:
            yield temporary / "model"
        finally:
            shutil.rmtree(temporary)


def served_gap(config: ExportConfig, folder: Path) -> Any:
    """How far what vLLM serves from `folder`, in float32, lies from the trained model."""
    import torch

    from condensery.files.export_card import read_export_card
    from distill.proof import gap
    from distill.serve import free_port, running_server
    from distill.served_proof import all_served_logprobs
    from distill.vllm_command import ServeConfig, address

    torch.cuda.empty_cache()  # the server wants the memory that the models had
    assert config.vllm_python is not None
    serving = ServeConfig(
        folder, port=free_port(), python=config.vllm_python, dtype="float32", vllm_args=config.vllm_args
    )
    card = read_export_card(folder)
    with running_server(serving):
        served = all_served_logprobs(address(serving), str(folder), card)
    trained = [value for prompt in card.fixed_prompts for value in prompt.trained_logprobs]
    return gap(torch.tensor(trained), torch.tensor(served))


def read_run(checkpoint: Path) -> dict[str, Any]:
    """run.json of a finished training run."""
    from condensery.files import run_directory

    path = checkpoint / "run.json"
    if not path.is_file():
        raise ValueError(f"{checkpoint} is no run of `condensery sft`: it has no run.json")
    run = run_directory.read_run(path)
    if not {"train_file", "model_name_or_path", "thinking"} <= run["config"].keys():
        raise ValueError(f"{checkpoint} is no run of `condensery sft`, but of {run.get('command')}")
    if not run["counts"].get("finished"):
        raise ValueError(f"{checkpoint} is not finished; run its command again with --resume")
    return run


def describe(config: ExportConfig, run: dict[str, Any]) -> dict[str, Any]:
    """The content of condensery.json, but for the proof."""
    from condensery.files.jsonl import read_json
    from condensery.files.run_directory import git_commit, versions
    from condensery.prompt import load_template

    settings = run["config"]
    given = config.prompt_template
    name, text = load_template(given) if given else template_of(settings, run["inputs"])
    return {
        "base": config.base or settings["model_name_or_path"],
        "prompt_template": {"name": name, "text": text},
        "thinking": settings["thinking"],
        "budgets": {"max_length": settings.get("max_length", 1024), "max_new_tokens": config.max_new_tokens},
        "data": run["inputs"],
        "training": {"config": settings, "counts": run["counts"], "git_commit": run.get("git_commit")},
        "metrics": read_json(config.metrics) if config.metrics else None,
        "git_commit": git_commit(),
        "versions": versions(),
    }


def template_of(settings: dict[str, Any], inputs: dict[str, str]) -> tuple[str, str]:
    """Name and text of the prompt template that was trained on: the settings name it, or the pairs."""
    from condensery.files.jsonl import read_jsonl
    from condensery.files.run_directory import fingerprint
    from condensery.prompt import load_template, template_files

    named, train_file = settings.get("prompt_template"), Path(settings["train_file"])
    for path in template_files(named) if named else [train_file]:
        if not path.is_file() or fingerprint(path) != inputs.get(str(path)):
            raise ValueError(f"{path} is gone or has changed since the training; name its --prompt_template")
    if named:  # of a run without pairs: reconstruct/grpo.py
        return load_template(named)
    name = str(read_jsonl(train_file)[0]["prompt_template"])
    beside = train_file.parent / "prompt_template.jinja"
    return (name, beside.read_text(encoding="utf-8")) if beside.is_file() else load_template(name)


if __name__ == "__main__":
    sys.exit(main())
