"""Fingerprints of a model's tensors: what training made of each, without holding two models at once.

A 30B model takes 122 GB in float32. A proof that compares every tensor of three of them (trained, exported,
base) keeps 64 characters a tensor instead. Names are those of the merged model, whoever is asked.
"""

import copy
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from peft import PeftModel
from peft.tuners.lora.layer import LoraLayer, ParamWrapper
from peft.utils.other import ModulesToSaveWrapper
from torch import nn

Prints = dict[str, str]  # a tensor's name -> its fingerprint


@dataclass(frozen=True)
class TrainedTensors:
    """What an export must hold: `unchanged` are tensors with an adapter that changes nothing, and why."""

    prints: Prints
    unchanged: dict[str, str] = field(default_factory=dict)


def fingerprint(tensor: torch.Tensor, dtype: torch.dtype) -> str:
    """SHA-256 of shape and values, rounded to `dtype`."""
    values = tensor.detach().to(dtype).cpu().contiguous()
    values = values + 0  # -0.0 is 0.0
    content = hashlib.sha256(str(tuple(values.shape)).encode())
    content.update(values.reshape(-1).view(torch.uint8).numpy())  # type: ignore[arg-type]
    return content.hexdigest()


def fingerprints(model: nn.Module, dtype: torch.dtype) -> Prints:
    """Of all parameters; tied ones count once."""
    return {name: fingerprint(weight, dtype) for name, weight in model.named_parameters()}


def trained_tensors(model: nn.Module, dtype: torch.dtype) -> TrainedTensors:
    """Of a trained model, or of an adapter on its base as it will be once merged. `model` stays as it is."""
    if not isinstance(model, PeftModel):
        return TrainedTensors(fingerprints(model, dtype))
    inner = model.get_base_model()
    prints = {
        _merged_name(name): fingerprint(weight, dtype)
        for name, weight in inner.named_parameters()
        if not _is_adapter(name)
    }
    unchanged = {}
    for name, before, after in merged_tensors(inner):
        prints[name] = fingerprint(after, dtype)
        if torch.equal(after, before):
            unchanged[name] = "its adapter is zero"
        elif torch.equal(after.to(dtype), before.to(dtype)):
            unchanged[name] = f"its change rounds away in {str(dtype).removeprefix('torch.')}"
    return TrainedTensors(prints, unchanged)


def merged_tensors(model: nn.Module) -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
    """(name, before, after merging) of each tensor that carries an adapter, or was trained beside it."""
    for name, module in model.named_modules():
        if isinstance(module, LoraLayer):
            leaf = module.parameter_name if isinstance(module, ParamWrapper) else "weight"
            merged: Any = copy.deepcopy(module)  # one layer at a time; unmerging would leave rounding behind
            merged.merge(safe_merge=True)
            before, after = (getattr(layer.get_base_layer(), leaf) for layer in (module, merged))
            yield _merged_name(f"{name}.{leaf}"), before, after
        elif isinstance(module, ModulesToSaveWrapper):
            saved = module.modules_to_save[module.active_adapters[0]]
            for leaf, after in saved.named_parameters():
                yield f"{name}.{leaf}", module.original_module.get_parameter(leaf), after


def _merged_name(name: str) -> str:
    return name.replace(".base_layer", "").replace(".original_module", "")


def _is_adapter(name: str) -> bool:
    return ".lora_" in name or ".modules_to_save." in name
