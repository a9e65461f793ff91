from pathlib import Path

import pytest

from modeling.loading import load_model, load_tokenizer, resolve_model


def test_packaged_model_is_unpacked_once_into_a_plain_folder() -> None:
    folder = Path(resolve_model("smollm2-135m-instruct"))
    assert (folder / "model.safetensors").is_file() and (folder / "chat_template.jinja").is_file()
    assert "quantization_config" not in (folder / "config.json").read_text()
    assert Path(resolve_model("smollm2-135m-instruct")) == folder


@pytest.mark.parametrize("name", ["./nowhere", "/no/such/folder"])
def test_missing_folder_is_one_line(name: str) -> None:
    with pytest.raises(ValueError, match="no model folder"):
        load_model(name)


def test_tokenizer_without_chat_template_is_refused(tmp_path: Path, smollm2_tokenizer) -> None:
    smollm2_tokenizer.save_pretrained(tmp_path)
    (tmp_path / "chat_template.jinja").unlink()
    with pytest.raises(ValueError, match="has no chat template"):
        load_tokenizer(str(tmp_path))
