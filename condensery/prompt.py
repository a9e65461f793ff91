"""From a compaction to the request a summarizer sees: one renderer, in training, reward and serving alike.

A prompt template is a `.jinja` file with a version in its name; `prompts/` holds ours, a path names a
user's own. Its slots are `task`, `last_summary`, `history` and `retained`. Values are escaped and filled in
one pass, so text from tools can neither close a block, nor fill a slot, nor become a control token of the
chat format.
"""

import re
from functools import cache
from pathlib import Path

import jinja2
import jinja2.meta

from condensery.compaction import Compaction
from condensery.message import Message

SLOTS = {"task", "last_summary", "history", "retained"}
PROMPTS = Path(__file__).parent / "prompts"

# Tags that our templates, the text protocols and the common chat formats give a meaning to.
CONTROL = re.compile(
    r"<(?=\||/?(?:summary|last_summary|history|task|retained|think|tool_call|tool_response|answer"
    r"|memory|reference|given"
    r"|s|pad|unk|bos|eos|start_of_turn|end_of_turn|fim_\w+|\w+_(?:start|end|sep|name|output|text|code|code_to_text)"
    r"|reponame|filename|gh_stars|im_start|im_end|endoftext)\s*>"
    r"|/?missing\b|span id=\"\d+\"\s*>)"  # where a hidden block stood, and its restoration (reconstruct/)
    r"|\[(?=/?INST\])",
    re.IGNORECASE,
)


def escape(text: str) -> str:
    """Defuse control tokens and block tags, visibly and without touching other markup."""
    return CONTROL.sub(lambda match: {"<": "&lt;", "[": "&#91;"}[match[0]], text)


def unescape(text: str) -> str:
    """The inverse, for comparing a summary with the raw history."""
    return text.replace("&lt;", "<").replace("&#91;", "[")


def template_names() -> list[str]:
    return sorted(path.stem for path in PROMPTS.glob("*.jinja"))


@cache
def load_template(name_or_path: str) -> tuple[str, str]:
    """(name, text) of a prompt template: one of `template_names()`, or a file."""
    own = PROMPTS / f"{name_or_path}.jinja"
    path = own if own.is_file() else Path(name_or_path)
    if not path.is_file():
        raise ValueError(
            f"prompt template {name_or_path!r} not found; use one of {', '.join(template_names())}, "
            "or the path of a file"
        )
    try:
        text = path.read_text(encoding="utf-8")
        slots = jinja2.meta.find_undeclared_variables(_environment().parse(text))
    except (UnicodeDecodeError, jinja2.TemplateSyntaxError) as error:
        raise ValueError(f"prompt template {path}: {error}") from error
    unknown, missing = sorted(slots - SLOTS), sorted({"task", "history"} - slots)
    if unknown or missing:
        wrong = [f"unknown slot {name}" for name in unknown] + [f"no slot {name}" for name in missing]
        slots_are = f"its slots are {', '.join(sorted(SLOTS))}"
        raise ValueError(f"prompt template {path}: {', '.join(wrong)}; {slots_are}")
    return path.stem, text


def template_files(name_or_path: str) -> list[Path]:
    """The file of a user's own template, which a run depends on; ours are versioned and never change."""
    return [] if name_or_path in template_names() else [Path(name_or_path)]


def render_history(messages: list[Message]) -> str:
    """Turns as text, one block each: role, then thought, text and calls; tool results under their calls."""
    return "\n".join(_render_turn(message) for message in messages)


def _render_turn(message: Message) -> str:
    parts = [message.reasoning_content or "", message.content]
    parts += [f"{call.function.name}({call.function.arguments})" for call in message.tool_calls]
    return f"[{message.role}] " + escape("\n".join(part.strip() for part in parts if part.strip()))


def history_text(compaction: Compaction) -> str:
    """All that a summary may state: task, last summary, expired and retained turns with their calls."""
    turns = unescape(render_history([*compaction.expired, *compaction.retained]))
    return "\n".join([compaction.task, compaction.last_summary or "", turns])


def render_prompt(compaction: Compaction, template: str) -> list[dict[str, str]]:
    """The chat request for a compaction: one user turn, as the ReSum wire has it.

    `template` is a name or a path, see `load_template`.
    """
    _, text = load_template(template)
    content = _compiled(text).render(
        task=escape(compaction.task),
        last_summary=escape(compaction.last_summary or ""),
        history=render_history(compaction.expired),
        retained=render_history(compaction.retained),
    )
    return [{"role": "user", "content": content.strip()}]


@cache
def _compiled(text: str) -> jinja2.Template:
    """Kept: to compile a template takes longer than to render a row."""
    return _environment().from_string(text)


@cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        trim_blocks=True, lstrip_blocks=True, autoescape=False, undefined=jinja2.StrictUndefined
    )
