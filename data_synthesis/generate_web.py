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
# SailorFog-QA asks across several hops, about entities that only their description tells: (hops, obscured).
LEVELS: dict[int, tuple[int, float]] = {1: (4, 0.2), 2: (6, 0.6), 3: (8, 1.0)}


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
    level: Literal[1, 2, 3] = field(
        default=1,
        metadata={"help": "how hard: hops, and how much is only described; 2 and 3 for large webs"},
    )
    max_hops: int | None = field(
        default=None, metadata={"help": "facts on the way to an answer (default: the level's)", "minimum": 3}
    )
    obscure: float | None = field(
        default=None, metadata={"help": "share of questions that describe, not name (default: the level's)"}
    )
    facts_per_page: int = field(default=2, metadata={"help": "more make an easier web", "minimum": 1})
    misleading: float = field(
        default=1.0, metadata={"help": "share of the outdated, contradicting, ... pages; less is easier"}
    )
    adversarial: float | None = field(
        default=None,
        metadata={"help": "share of facts with an opposite claim, a negation, a repost or a near-equal twin"},
    )
    updates: float | None = field(
        default=None, metadata={"help": "share of figures whose older values are on the web, too"}
    )
    seed: int = field(default=0, metadata={"help": "equal seeds give equal webs"})

    def __post_init__(self) -> None:
        hops, obscure = LEVELS[self.level]
        self.max_hops = hops if self.max_hops is None else self.max_hops
        self.obscure = obscure if self.obscure is None else self.obscure
        for name in ("obscure", "misleading", "adversarial", "updates"):
            value = vars(self)[name]
            if value is not None and not 0 <= value <= 1:
                raise ValueError(f"{name} is {value}; it is a share, from 0 to 1")


def generate_web(config: WebConfig) -> tuple[list[Page], list[Question]]:
    """Pages and questions. Raises ValueError when so many questions do not fit so few entities."""
    web = WebGenerator(
        *(config.seed, config.language, config.part, config.phrasing, config.num_entities),
        facts_per_page=config.facts_per_page,
        misleading=config.misleading,
        adversarial=config.adversarial,
        updates=config.updates,
        joined_names=config.level > 1,
    )
    assert config.max_hops is not None and config.obscure is not None
    questions = QuestionGenerator(web, config.seed, config.max_hops, config.obscure, unique=config.level > 1)
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
    num_entities = len({page.title for page in pages if page.kind == "profile"})
    print(f"{directory}: {len(pages)} pages ({', '.join(f'{n} {k}' for k, n in kinds.most_common())}), "
          f"{len(questions)} questions, {num_entities} entities")  # fmt: skip
    if config.level == 1 and num_entities < 0.99 * config.num_entities:
        print(f"{config.num_entities} entities were asked for, and the vocabulary has no more names; "
              "--level 2 joins its words to new ones")  # fmt: skip
    return 0
