import json
import shutil
from pathlib import Path

import pytest

from modeling.loading import check_student, check_weights, load_model, load_tokenizer, resolve_model


def test_packaged_model_is_unpacked_once_into_a_plain_folder() -> None:
    folder = Path(resolve_model("smollm2-135m-instruct"))
    assert (folder / "model.safetensors").is_file() and (folder / "chat_template.jinja").is_file()
    assert "quantization_config" not in (folder / "config.json").read_text()
    assert Path(resolve_model("smollm2-135m-instruct")) == folder


@pytest.fixture
def adapter(tmp_path: Path, tiny_llama: Path) -> Path:
    """A folder that looks like an adapter of the tiny model, without its weights."""
    config = {
        "peft_type": "LORA",
        "base_model_name_or_path": str(tiny_llama),
        "r": 2,
        "target_modules": ["q_proj"],
    }
    (tmp_path / "adapter_config.json").write_text(json.dumps(config))
    return tmp_path


def test_an_adapter_without_weights_or_base_is_one_line(adapter: Path, tiny_llama: Path) -> None:
    with pytest.raises(ValueError, match="holds no weights"):
        load_model(str(adapter))
    shutil.copy(tiny_llama / "model.safetensors", adapter / "adapter_model.safetensors")
    (adapter / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA"}))
    with pytest.raises(ValueError, match="names no base model"):
        load_model(str(adapter))
    (adapter / "adapter_config.json").write_text('{"peft_type"')
    with pytest.raises(ValueError, match="names no base model"):
        load_model(str(adapter))


def test_an_adapter_of_other_shapes_is_one_line(adapter: Path, tiny_llama: Path) -> None:
    import torch
    from safetensors.torch import save_file

    layer = "base_model.model.model.layers.0.self_attn.q_proj"
    weights = {f"{layer}.lora_A.weight": torch.zeros(2, 64), f"{layer}.lora_B.weight": torch.zeros(64, 2)}
    save_file(weights, adapter / "adapter_model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match="cannot load the adapter"):
        load_model(str(adapter))


def test_weights_that_are_cut_off_are_found_without_loading_them(tmp_path: Path, tiny_llama: Path) -> None:
    check_weights(str(tiny_llama))
    check_weights("org/a-model-on-the-hub")
    folder = shutil.copytree(tiny_llama, tmp_path / "broken")
    weights = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(weights[:-1])
    with pytest.raises(ValueError, match=r"model\.safetensors is damaged"):
        check_weights(str(folder))
    (folder / "model.safetensors").unlink()
    with pytest.raises(ValueError, match="holds no weights"):
        check_weights(str(folder))


@pytest.mark.parametrize("index", ["{", "[]", '{"weight_map": 3}'])
def test_a_damaged_index_of_shards_is_one_line(index: str, tmp_path: Path, tiny_llama: Path) -> None:
    folder = shutil.copytree(tiny_llama, tmp_path / "broken")
    (folder / "model.safetensors.index.json").write_text(index)
    with pytest.raises(ValueError, match=r"index\.json is damaged; copy the folder again"):
        load_model(str(folder))


def test_weights_that_do_not_fit_their_config_are_named(tmp_path: Path, tiny_llama: Path) -> None:
    """transformers makes up what is missing, and leaves out what has no place."""
    for layers, complaint in ((3, "are missing, such as model.layers.2."), (1, "have no place")):
        folder = shutil.copytree(tiny_llama, tmp_path / str(layers))
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | {"num_hidden_layers": layers}))
        with pytest.raises(ValueError, match=complaint):
            load_model(str(folder))


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("config.json", "[]"),
        ("config.json", '{"model_type": "llama", "hidden_size": "32"}'),
        ("config.json", "\x00\x01"),
        ("tokenizer.json", "[]"),
    ],
)
def test_a_damaged_file_is_one_line(file: str, content: str, tmp_path: Path, tiny_llama: Path) -> None:
    folder = shutil.copytree(tiny_llama, tmp_path / "broken")
    (folder / file).write_text(content)
    load = load_tokenizer if file == "tokenizer.json" else load_model
    with pytest.raises(ValueError, match="cannot load") as raised:
        load(str(folder))
    assert "\n" not in str(raised.value)


def test_a_chat_template_that_fails_is_named(tmp_path: Path, tiny_llama: Path) -> None:
    folder = shutil.copytree(tiny_llama, tmp_path / "broken")
    (folder / "chat_template.jinja").write_text("{% for")
    with pytest.raises(ValueError, match=r"the chat template of .* fails"):
        load_tokenizer(str(folder))


@pytest.mark.parametrize("name", ["./nowhere", "/no/such/folder"])
def test_missing_folder_is_one_line(name: str) -> None:
    with pytest.raises(ValueError, match="no model folder"):
        load_model(name)


def test_tokenizer_without_chat_template_is_refused(tmp_path: Path, smollm2_tokenizer) -> None:
    smollm2_tokenizer.save_pretrained(tmp_path)
    (tmp_path / "chat_template.jinja").unlink()
    with pytest.raises(ValueError, match="has no chat template"):
        load_tokenizer(str(tmp_path))


def test_an_adapter_is_no_student(tiny_llama: Path, tmp_path: Path) -> None:
    folder = tmp_path / "adapter"
    shutil.copytree(tiny_llama, folder)
    check_student(str(folder))
    (folder / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": str(tiny_llama)}))
    with pytest.raises(ValueError, match="is an adapter; merge it with `condensery export"):
        check_student(str(folder))
