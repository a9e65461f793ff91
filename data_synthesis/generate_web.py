"""Generate an offline web with its questions; the same seed gives the same bytes on every machine.

condensery web --output_dir runs/web --num_questions 200 --seed 1
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from condensery.files.config import fail, parse_args
from condensery.files.jsonl import write_jsonl
from condensery.files.run_directory import describe_run, open_run_directory
from data_synthesis.question import Question
from data_synthesis.web import Page
from data_synthesis.web_generator import WebGenerator
from data_synthesis.web_questions import QuestionGenerator

PROG = "condensery web"


@dataclass
class WebConfig:
    """Webs of different `part` share no entity; `phrasing: unseen` words every page as no `seen` web does.

    More `facts_per_page` and a smaller share of `misleading` pages make an easier web.
    """

    output_dir: str
    num_questions: int = 200
    num_entities: int = 300
    language: Literal["en", "zh"] = "en"
    part: Literal["train", "held_out"] = "train"
    phrasing: Literal["seen", "unseen"] = "seen"
    max_hops: int = 4
    obscure: float = 0.2
    facts_per_page: int = 2
    misleading: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.max_hops < 3:
            raise ValueError(f"max_hops is {self.max_hops}; a chain needs at least 3")
        for name in ("obscure", "misleading"):
            if not 0 <= vars(self)[name] <= 1:
                raise ValueError(f"{name} is {vars(self)[name]}; it is a share, from 0 to 1")
        if self.facts_per_page < 1:
            raise ValueError(f"facts_per_page is {self.facts_per_page}; it must be at least 1")
        if self.num_questions < 1 or self.num_entities < 40:
            raise ValueError(
                f"num_questions is {self.num_questions} and num_entities {self.num_entities}; "
                "a web needs at least 1 question and 40 entities"
            )


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
    except (ValueError, FileExistsError) as error:
        fail(PROG, error)
    write_jsonl(directory / "pages.jsonl", (page.model_dump() for page in pages))
    write_jsonl(directory / "questions.jsonl", (question.model_dump() for question in questions))
    kinds = Counter(page.kind for page in pages)
    describe_run(
        Path(directory),
        asdict(config),
        counts={"pages": len(pages), "questions": len(questions), "pages_by_kind": dict(kinds)},
    )
    print(f"{directory}: {len(pages)} pages ({', '.join(f'{n} {k}' for k, n in kinds.most_common())}), "
          f"{len(questions)} questions")  # fmt: skip
    return 0
