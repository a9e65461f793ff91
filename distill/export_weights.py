"""The weights of an export: saved, loaded again from their folder alone, held against the trained ones.

Three kinds: all weights as trained; an adapter merged into its base; an adapter kept as it is, with the name
of its base. One model is in memory at a time. An adapter trained on a 4-bit base goes the way of any other,
on the base in full: merging into 4-bit weights would round what was learned away. What leaving the quantised
base changes is measured and told.
"""

import os
import shutil
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from condensery.files.export_card import FixedPrompt
from condensery.files.jsonl import parse_json
from condensery.files.run_directory import write_json
from condensery.thinking import Thinking
from distill.fingerprints import TrainedTensors, fingerprints, trained_tensors
from distill.proof import Gap, Proof, compare, compare_tensors, fixed_logprobs, fixed_pairs, gap
from distill.served_proof import prompts_of
from modeling.generation import stop_ids
from modeling.loading import base_of, load_config, load_model, load_tokenizer, weights_print

WEIGHTS = "adapter_model.safetensors"


@dataclass(frozen=True)
class Export:
    """What is exported, from where, in which form."""

    checkpoint: Path
    base: str  # where the base lies
    thinking: Thinking
    dtype: torch.dtype  # of the written weights
    rounded: bool  # it is lower than the trained
    keep_adapter: bool
    max_shard_size: str
    settings: dict[str, Any]  # the training run's

    @property
    def is_adapter(self) -> bool:
        return is_adapter(self.checkpoint)

    def load_trained(self, **options: Any) -> PreTrainedModel:
        base = self.base if self.is_adapter else None
        return load_model(str(self.checkpoint), "float32", device_map=device_map(), base=base, **options)


def is_adapter(checkpoint: Path) -> bool:
    return (checkpoint / "adapter_config.json").is_file()


def plan_export(
    checkpoint: Path,
    base: str,
    dtype: str,
    keep_adapter: bool,
    max_shard_size: str,
    settings: dict[str, Any],
) -> Export:
    """Raises ValueError for an adapter of another base, or of one that has changed since, and for
    `keep_adapter` where there is none."""
    adapter = is_adapter(checkpoint)
    if keep_adapter and not adapter:
        raise ValueError(f"{checkpoint} holds all weights, no adapter; export it without --keep_adapter")
    # By its last part: the same model may lie in a folder here and on the hub there.
    if adapter and Path(base_of(checkpoint)).name != Path(base).name:
        raise ValueError(
            f"the adapter {checkpoint} was trained on {base_of(checkpoint)}, not on {base}; name its own "
            "base with --base"
        )
    trained, now = settings.get("base_weights"), weights_print(base) if adapter else None
    if trained and now and trained != now:
        raise ValueError(
            f"the weights of {base} are not those that {checkpoint} was trained on; name a copy of those "
            "with --base, or train again"
        )
    config = load_config(base, settings.get("model_revision")) if adapter else load_config(str(checkpoint))
    trained_dtype: Any = config.dtype or torch.float32
    written = trained_dtype if dtype == "auto" else getattr(torch, dtype)
    # An adapter is trained in float32, whatever its base is in; kept, it is copied as it is.
    rounded = not keep_adapter and written != torch.float32 and (adapter or written != trained_dtype)
    written = torch.float32 if keep_adapter else written
    return Export(
        checkpoint, base, settings["thinking"], written, rounded, keep_adapter, max_shard_size, settings
    )


def write_and_prove(export: Export, folder: Path) -> tuple[Proof, list[FixedPrompt]]:
    """Save under `folder`, load it from there alone, and return the proof, not yet checked."""
    tokenizer = load_tokenizer(str(export.checkpoint))
    pairs = fixed_pairs(tokenizer, export.thinking)
    model = export.load_trained()
    # The adapter on its base, before the merge: a wrong merge is what the proof looks for.
    trained, tensors = fixed_logprobs(model, pairs), trained_tensors(model, export.dtype)
    save(export, model, tokenizer, folder)
    del model
    return prove(export, folder, trained, tensors)


def prove(
    export: Export, folder: Path, trained: torch.Tensor, tensors: TrainedTensors
) -> tuple[Proof, list[FixedPrompt]]:
    """Hold `folder` against the trained model's log-probabilities (T,) and tensors."""
    pairs = fixed_pairs(load_tokenizer(str(folder)), export.thinking)
    model: Any = load_model(str(folder), "float32", device_map=device_map())
    exported = fixed_logprobs(model, pairs)
    if export.keep_adapter:  # as it will be where somebody merges it
        model = model.merge_and_unload(safe_merge=True)
    exported_prints = fingerprints(model, export.dtype)
    del model
    revision = export.settings.get("model_revision")
    model = load_model(export.base, "float32", revision, device_map=device_map())
    untouched, base_prints = fixed_logprobs(model, pairs), fingerprints(model, export.dtype)
    del model
    proof = compare(
        trained, exported, untouched, compare_tensors(tensors, exported_prints, base_prints), export.rounded
    )
    proof = replace(proof, quantization=quantized_drift(export, pairs, exported, untouched))
    return proof, prompts_of(pairs, trained.tolist(), untouched.tolist())


def quantized_drift(
    export: Export, pairs: list[Any], exported: torch.Tensor, base: torch.Tensor
) -> dict[str, Gap]:
    """For an adapter trained on a quantised base; empty for others.

    The first figure is what a user sees; the second, how much of it quantising makes by itself. Held against
    the third, the fourth says how much of what was learned depends on the quantised base.
    """
    quantization = quantization_of(export.settings)
    if quantization is None:
        return {}
    model: Any = export.load_trained(quantization_config=quantization)
    trained_q = fixed_logprobs(model, pairs)
    with model.disable_adapter():
        base_q = fixed_logprobs(model, pairs)
    return {
        "trained_quantized_against_exported": gap(trained_q, exported),
        "base_quantized_against_base": gap(base_q, base),
        "change_by_training_quantized": gap(trained_q, base_q),
        "change_differs_by": gap(trained_q - base_q, exported - base),
    }


def quantization_of(settings: dict[str, Any]) -> Any:
    """The training run's, computing in float32 as all models of the proof do; None for none."""
    from trl import ModelConfig, get_quantization_config

    known = {each.name for each in fields(ModelConfig)}
    chosen = {name: value for name, value in settings.items() if name in known}
    return get_quantization_config(ModelConfig(**chosen | {"dtype": "float32"}))


def save(export: Export, model: Any, tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """Write the folder. Raises ValueError where the disk does not take it."""
    model.generation_config.eos_token_id = stop_ids(model, tokenizer)
    text = model.config.get_text_config()
    if getattr(text, "output_router_logits", False):  # for the auxiliary loss; padded generation fails
        text.output_router_logits = False
    try:
        folder.mkdir()
        if export.keep_adapter:
            config = parse_json((export.checkpoint / "adapter_config.json").read_bytes())
            write_json(folder / "adapter_config.json", config | {"base_model_name_or_path": export.base})
            shutil.copyfile(export.checkpoint / WEIGHTS, folder / WEIGHTS)
            model.config.save_pretrained(folder)  # for `condensery serve`: the window, the thinking
            model.generation_config.save_pretrained(folder)
        else:
            model = model.merge_and_unload(safe_merge=True) if export.is_adapter else model
            model.to(export.dtype).save_pretrained(folder, max_shard_size=export.max_shard_size)
        tokenizer.save_pretrained(folder)
        make_readable(folder)
    except (OSError, SafetensorError) as error:  # a full disk, most of all
        raise ValueError(
            f"cannot write the export under {folder.parent.parent}: {error}; make room, or choose another "
            "--output_dir"
        ) from error


def make_readable(folder: Path) -> None:
    """Weights are saved for their owner alone; who serves them may be another user."""
    umask = os.umask(0)
    os.umask(umask)
    for file in folder.iterdir():
        file.chmod(0o666 & ~umask)


def device_map() -> str | None:
    """All GPUs together where there are any: a 30B model in float32 fits no single one."""
    return "auto" if torch.cuda.is_available() else None
