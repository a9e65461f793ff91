"""Generate an offline web with its questions; the same seed gives the same bytes on every machine.

condensery web --output_dir runs/web --num_questions 200 --seed 1
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from condensery.files.config import fail, parse_args, resolved_config
from condensery.files.jsonl import write_jsonl
from condensery.files.run_directory import describe_run, open_run_directory
from data_synthesis.question import Question
from data_synthesis.web import Page
from data_synthesis.web_generator import WebGenerator
from data_synthesis.web_questions import QuestionGenerator

PROG = "condensery web"


@dataclass
class WebConfig:
    """How large a web, in which language and words, and how hard."""

    output_dir: Path = field(metadata={"help": "where pages and questions go"})
    num_questions: int = field(default=200, metadata={"help": "how many to ask", "minimum": 1})
    num_entities: int = field(default=300, metadata={"help": "people, towns, ships, ...", "minimum": 40})
    language: Literal["en", "zh"] = field(default="en", metadata={"help": "of pages and questions"})
    part: Literal["train", "held_out"] = field(
        default="train", metadata={"help": "whose names are taken: the parts share none"}
    )
    phrasing: Literal["seen", "unseen"] = field(
        default="seen", metadata={"help": "unseen: every fact in words that no seen web has"}
    )
    max_hops: int = field(default=4, metadata={"help": "facts on the way to an answer", "minimum": 3})
    obscure: float = field(default=0.2, metadata={"help": "share of questions that describe, not name"})
    facts_per_page: int = field(default=2, metadata={"help": "more make an easier web", "minimum": 1})
    misleading: float = field(
        default=1.0, metadata={"help": "share of the outdated, contradicting, ... pages; less is easier"}
    )
    seed: int = field(default=0, metadata={"help": "equal seeds give equal webs"})

    def __post_init__(self) -> None:
        for name in ("obscure", "misleading"):
            if not 0 <= vars(self)[name] <= 1:
                raise ValueError(f"{name} is {vars(self)[name]}; it is a share, from 0 to 1")


def generate_web(config: WebConfig) -> tuple[list[Page], list[Question]]:
    """Pages and questions. Raises ValueError when so many questions do not fit so few entities."""
    web = WebGenerator(
        *(config.seed, config.language, config.part, config.phrasing, config.num_entities),
        facts_per_page=config.facts_per_page,
        misleading=config.misleading,
    )
    questions = QuestionGenerator(web, config.seed, config.max_hops, config.obscure)
    return web.pages, list(questions.questions(config.num_questions))


def main(argv: Sequence[str] | None = None) -> int:
    config = parse_args(
        WebConfig,
        argv=argv,
        prog=PROG,
        description="Generate an offline web whose truth is known, and questions about it.",
        example="condensery web --output_dir runs/web --num_questions 200 --seed 1",
    )
    try:
        pages, questions = generate_web(config)
        directory = open_run_directory(config.output_dir)
        write_jsonl(directory / "pages.jsonl", (page.model_dump() for page in pages))
        write_jsonl(directory / "questions.jsonl", (question.model_dump() for question in questions))
        kinds = Counter(page.kind for page in pages)
        describe_run(
            directory,
            resolved_config(config),
            counts={"pages": len(pages), "questions": len(questions), "pages_by_kind": dict(kinds)},
        )
    except (OSError, ValueError) as error:
        fail(PROG, error)
    print(f"{directory}: {len(pages)} pages ({', '.join(f'{n} {k}' for k, n in kinds.most_common())}), "
          f"{len(questions)} questions")  # fmt: skip
    return 0
