"""From a training run to a folder that stands alone, with proof that it holds what was trained.

    condensery export --checkpoint runs/sft --output_dir runs/export

The folder has merged weights, tokenizer, chat template, generation config, and `condensery.json`: base,
data, prompt template with its text, budgets, proof. It is written under another name and renamed once the
proof holds.
"""

import os
import sys
import tempfile
from dataclasses import dataclass, field
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
    max_new_tokens: int = field(
        default=4096, metadata={"help": "budget of an answer, thinking included", "minimum": 1}
    )
    metrics: Path | None = field(
        default=None, metadata={"help": "report.json of an evaluation to take along"}
    )


def main(argv: list[str] | None = None) -> int:
    from condensery.files.config import fail, parse_args

    config = parse_args(
        ExportConfig,
        argv=argv,
        prog=PROG,
        description="Write a trained summarizer as a folder that stands alone, and prove that it is the "
        "trained one.",
        example=f"{PROG} --checkpoint runs/sft --output_dir runs/export",
    )
    try:
        export(config)
    except (OSError, ValueError) as error:
        fail(PROG, error)
    return 0


def export(config: ExportConfig) -> None:
    """Merge, save, reload, compare, and only then name the folder. ValueError if any step fails."""
    from condensery.files.export_card import NAME as CARD
    from condensery.files.run_directory import write_json
    from modeling.progress import quiet_unless_terminal

    quiet_unless_terminal()
    run = read_run(config.checkpoint)
    if config.output_dir.exists():
        raise ValueError(f"{config.output_dir} exists; choose another --output_dir, or remove it")
    card = describe(config, run)
    config.output_dir.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=config.output_dir.parent, prefix=".export-") as temporary:
        folder = Path(temporary) / "model"
        card["proof"] = write_and_prove(config, card, folder).to_dict()
        write_json(folder / CARD, card)
        folder.rename(config.output_dir)
    print(f"exported {config.output_dir}; next: condensery serve {config.output_dir}", file=sys.stderr)


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
    from condensery.files.jsonl import parse_json
    from condensery.files.run_directory import git_commit, versions
    from condensery.prompt import load_template

    settings = run["config"]
    given = config.prompt_template
    name, text = load_template(given) if given else template_of(settings["train_file"], run["inputs"])
    return {
        "base": config.base or settings["model_name_or_path"],
        "prompt_template": {"name": name, "text": text},
        "thinking": settings["thinking"],
        "budgets": {"max_length": settings.get("max_length", 1024), "max_new_tokens": config.max_new_tokens},
        "data": run["inputs"],
        "training": {"config": settings, "counts": run["counts"], "git_commit": run.get("git_commit")},
        "metrics": parse_json(config.metrics.read_bytes()) if config.metrics else None,
        "git_commit": git_commit(),
        "versions": versions(),
    }


def template_of(path: str, inputs: dict[str, str]) -> tuple[str, str]:
    """Name and text of the prompt template of the pairs that were trained on."""
    from condensery.files.jsonl import read_jsonl
    from condensery.files.run_directory import fingerprint
    from condensery.prompt import load_template

    train_file = Path(path)
    if not train_file.is_file() or fingerprint(train_file) != inputs.get(path):
        raise ValueError(f"{path} is gone or has changed since the training; name its --prompt_template")
    name = str(read_jsonl(train_file)[0]["prompt_template"])
    beside = train_file.parent / "prompt_template.jinja"
    return (name, beside.read_text(encoding="utf-8")) if beside.is_file() else load_template(name)


def write_and_prove(config: ExportConfig, card: dict[str, Any], folder: Path) -> Any:
    """Save the merged model under `folder`, reload it from there alone, and return the proof, checked."""
    import torch
    from transformers import AutoConfig

    from distill.proof import changed_tensors, compare, fixed_logprobs, fixed_pairs, num_trained_tensors
    from modeling.chat_template import thinking_switch
    from modeling.generation import stop_ids
    from modeling.loading import base_of, load_model, load_tokenizer, resolve_model

    is_adapter = (config.checkpoint / "adapter_config.json").is_file()
    base_place = resolve_model(card["base"])
    weights_of = base_of(config.checkpoint) if is_adapter else str(config.checkpoint)
    trained_dtype = AutoConfig.from_pretrained(resolve_model(weights_of)).dtype
    dtype = trained_dtype if config.dtype == "auto" else getattr(torch, config.dtype)
    tokenizer = load_tokenizer(str(config.checkpoint))
    card["enable_thinking"] = thinking_switch(tokenizer, card["thinking"])
    pairs = fixed_pairs(tokenizer, card["thinking"])

    model: Any = load_model(str(config.checkpoint), "float32", device_map=device_map())
    trained = fixed_logprobs(model, pairs)
    num_expected = num_trained_tensors(model)
    # Compared with the adapter on its base, before the merge: a wrong merge is what the proof looks for.
    if is_adapter:
        model = model.merge_and_unload(safe_merge=True)
    model.generation_config.eos_token_id = stop_ids(model, tokenizer)
    model.to(dtype).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    make_readable(folder)
    # The export is loaded from its folder alone, as a server will load it.
    del model

    exported_model = load_model(str(folder), "float32", device_map=device_map())
    exported = fixed_logprobs(exported_model, fixed_pairs(load_tokenizer(str(folder)), card["thinking"]))
    base_model = load_model(base_place, "float32", device_map=device_map())
    base = fixed_logprobs(base_model, pairs)
    changed = changed_tensors(exported_model, base_model, dtype)
    rounded = dtype != torch.float32 and (is_adapter or dtype != trained_dtype)
    proof = compare(trained, exported, base, (len(changed), num_expected), rounded)
    print(f"proof: {proof}", file=sys.stderr)
    proof.check()
    return proof


def make_readable(folder: Path) -> None:
    """Weights are saved for their owner alone; who serves them may be another user."""
    umask = os.umask(0)
    os.umask(umask)
    for file in folder.iterdir():
        file.chmod(0o666 & ~umask)


def device_map() -> str | None:
    """All GPUs together where there are any: a 30B model in float32 fits no single one."""
    import torch

    return "auto" if torch.cuda.is_available() else None


if __name__ == "__main__":
    sys.exit(main())
