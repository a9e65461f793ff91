"""The prompts of this package: versioned `.jinja` files, whose values are escaped by who renders them."""

from functools import cache
from pathlib import Path

import jinja2

PROMPTS = Path(__file__).parent / "prompts"


@cache
def _template(name: str) -> jinja2.Template:
    environment = jinja2.Environment(
        trim_blocks=True, lstrip_blocks=True, autoescape=False, undefined=jinja2.StrictUndefined
    )
    return environment.from_string((PROMPTS / f"{name}.jinja").read_text(encoding="utf-8"))


def render_request(name: str, **slots: str | int | bool) -> list[dict[str, str]]:
    """A chat request of one user turn."""
    return [{"role": "user", "content": _template(name).render(slots).strip()}]
