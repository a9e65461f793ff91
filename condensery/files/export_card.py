"""`condensery.json`: what an export says about itself to those who ask, serve or measure it."""

from pathlib import Path
from typing import Literal

from pydantic import BaseModel

from condensery.files.jsonl import parse_json, to_record

NAME = "condensery.json"


class PromptTemplate(BaseModel):
    name: str
    text: str


class FixedPrompt(BaseModel):
    """A text on which any server can be held against the trained model: both log p of each token after
    the prompt's."""

    input_ids: list[int]
    num_prompt_tokens: int
    trained_logprobs: list[float]
    base_logprobs: list[float]


class ExportCard(BaseModel):
    """The part of the file that later stages depend on."""

    prompt_template: PromptTemplate
    thinking: Literal["keep", "empty", "none"] = "none"
    enable_thinking: bool | None = None  # the switch of the chat template that goes with it
    fixed_prompts: list[FixedPrompt] = []


def read_export_card(folder: Path) -> ExportCard:
    """Raises ValueError for a folder that is no export, or whose card is damaged."""
    path = folder / NAME
    if not path.is_file():
        raise ValueError(f"{folder} is no export: it has no {NAME}; `condensery export` writes one")
    try:
        return to_record(parse_json(path.read_bytes()), ExportCard)
    except ValueError as error:
        raise ValueError(f"{path} is damaged; export again: {error}") from error
