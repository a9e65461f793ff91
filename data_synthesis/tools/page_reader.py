"""Reading a page: its text out of whatever the server sent, and what of it bears on the agent's goal."""

import re
from pathlib import Path

import jinja2

from condensery.endpoint import Endpoint
from condensery.prompt import escape
from condensery.tokens import Tokenizer
from data_synthesis.excerpt import count
from data_synthesis.tools.http_client import BackendError, Fetched

PROMPT = Path(__file__).parents[1] / "prompts" / "page_reader_v1.jinja"
TEXT_TYPES = re.compile(r"text/|json|xml|javascript|^$")
CHARSET = re.compile(r"charset=[\"']?([\w-]+)", re.IGNORECASE)


def text_of(fetched: Fetched) -> str:
    """The main text of a page. Raises BackendError for what is none: an image, a PDF, an empty page."""
    kind = fetched.content_type.partition(";")[0].strip().lower()
    if not TEXT_TYPES.search(kind) or b"\0" in fetched.content[:1024]:
        raise BackendError("not_text", f"{kind or 'binary data'}; only pages of text can be read")
    is_html = kind in ("text/html", "application/xhtml+xml", "")
    text = _extract(fetched) if is_html else _decode(fetched)
    if not text.strip():
        raise BackendError("not_text", "no text on the page")
    return text.strip()


def _extract(fetched: Fetched) -> str:
    import trafilatura  # slow to import

    declared = CHARSET.search(fetched.content_type)
    # Without a charset in the header the page's own declaration and its bytes tell.
    content = _decode(fetched) if declared else fetched.content
    return trafilatura.extract(content, url=fetched.url, include_tables=True, include_comments=False) or ""


def _decode(fetched: Fetched) -> str:
    declared = CHARSET.search(fetched.content_type)
    try:
        return fetched.content.decode(declared[1] if declared else "utf-8", "replace")
    except LookupError:  # a charset that nobody knows
        return fetched.content.decode("utf-8", "replace")


async def read_for_goal(
    text: str, goal: str, endpoint: Endpoint, max_tokens: int, tokenizer: Tokenizer | None
) -> str:
    """What bears on the goal, as a model reads it, piece by piece (ReSum's `visit`). Raises EndpointError."""
    template = jinja2.Template(PROMPT.read_text(encoding="utf-8"), undefined=jinja2.StrictUndefined)
    extracts = []
    pieces = split_text(text, max_tokens, tokenizer)
    for number, piece in enumerate(pieces, start=1):
        content = template.render(
            goal=escape(goal), page=escape(piece), number=number, num_pieces=len(pieces)
        )
        reply = await endpoint.chat([{"role": "user", "content": content}])
        extracts.append(reply.message.content.rpartition("</think>")[2].strip())
    return "\n".join(extract for extract in extracts if extract and extract != "Nothing.")


def split_text(text: str, max_tokens: int, tokenizer: Tokenizer | None) -> list[str]:
    """Pieces of at most so many tokens, cut between paragraphs where that is possible."""
    pieces: list[str] = []
    current: list[str] = []
    size = 0
    for part in _parts(text, max_tokens, tokenizer):
        num_tokens = count(part, tokenizer) + 1
        if current and size + num_tokens > max_tokens:
            pieces.append("\n".join(current))
            current, size = [], 0
        current.append(part)
        size += num_tokens
    return [*pieces, "\n".join(current)]


def _parts(text: str, max_tokens: int, tokenizer: Tokenizer | None) -> list[str]:
    """Paragraphs; those that are longer than a piece in parts of characters, a token being one at least."""
    parts = []
    for paragraph in text.split("\n"):
        fits = len(paragraph) < max_tokens or count(paragraph, tokenizer) < max_tokens
        step = len(paragraph) + 1 if fits else max(1, max_tokens // 2)
        parts += [paragraph[start : start + step] for start in range(0, len(paragraph), step)]
    return parts
