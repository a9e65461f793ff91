"""Multi-hop questions over an offline web, with the facts on the way to the answer.

Entities may be obscured (a year as a range, a person as a description), and the user may set constraints (a
time range, an excluded source), as in SailorFog-QA.
"""

import random
from collections.abc import Iterator

from condensery.facts import Fact
from condensery.trajectory import content_id
from data_synthesis.question import Question
from data_synthesis.web import Page
from data_synthesis.web_generator import NEW_YEARS, OLD_YEARS, Entity, WebGenerator

Hop = tuple[Entity, str]  # (subject, attribute)


class QuestionGenerator:
    """Draws questions about entities of `web`; in a share `obscure` the first one is only described."""

    def __init__(
        self, web: WebGenerator, seed: int, max_hops: int, obscure: float, unique: bool = False
    ) -> None:
        """`unique`: a description is used only where it fits one entity of the web."""
        self.web, self.max_hops, self.obscure, self.unique = web, max_hops, obscure, unique
        self.rng = random.Random(f"questions {seed} {web.language} {web.part} {web.phrasing}")
        self.forms = web.vocabulary["questions"]
        self.site_of = {page.id: page.site for page in web.pages}
        entities = list(web.entities.values())
        self.of_kind = {kind: [e for e in entities if e.kind == kind] for kind in {e.kind for e in entities}}
        self.with_relations = [entity for entity in entities if self._relations(entity)]
        self.with_many_values = [entity for entity in entities if len(entity.values) > 3]
        self.kinds = [entity.kind for entity in entities]
        self.pages_by_fact: dict[tuple[str, str], list[Page]] = {}
        for page in web.pages:
            for fact in page.facts:
                self.pages_by_fact.setdefault((fact.subject, fact.attribute), []).append(page)

    def questions(self, num_questions: int) -> Iterator[Question]:
        """Distinct questions. Raises ValueError when this web is too small for so many."""
        seen: set[str] = set()
        for _ in range(num_questions * 20):
            if len(seen) == num_questions:
                return
            draw = self.rng.choices([self._chain, self._gather, self._compare], [5, 3, 2])[0]
            question = draw()
            if question and question.id not in seen:
                seen.add(question.id)
                yield question
        if len(seen) < num_questions:
            raise ValueError(
                f"only {len(seen)} of {num_questions} questions fit this web; raise --num_entities"
            )

    def _spec(self, hop: Hop) -> dict:
        return self.web.attributes(hop[0])[hop[1]]["value"]

    def _noun(self, entity: Entity) -> str:
        return self.web.vocabulary["kinds"][entity.kind]["noun"]

    def _listing(self, items: list[str]) -> str:
        return ("、" if self.web.language == "zh" else ", ").join(items)

    def _relations(self, entity: Entity) -> list[str]:
        return [
            name for name in self.web.attributes(entity) if self._spec((entity, name))["type"] == "entity"
        ]

    def _chain(self) -> Question | None:
        """From an entity over relations to a plain attribute of the last one."""
        entity = self.rng.choice(self.with_relations)
        hops: list[Hop] = []
        for _ in range(self.rng.randint(2, self.max_hops - 1)):
            attribute = self.rng.choice(self._relations(entity))
            following = self.web.entities[entity.values[attribute]]
            if following.name in [e.name for e, _ in hops] + [entity.name]:
                break
            hops.append((entity, attribute))
            entity = following
        plain = [name for name in self.web.attributes(entity) if name not in self._relations(entity)]
        hops.append((entity, self.rng.choice(plain)))
        rest = self._listing([self._step(e, a) for e, a in hops[1:]])
        first, description, extra = self._introduce(hops[0][0], asked=hops[0][1])
        if description and rest:
            text = description + self.forms["obscured_tail"]["chain"].format(
                a=hops[0][1], noun=first, rest=rest
            )
        elif rest:
            last = self._step(*hops[-1])
            named = self.forms["first"].format(a=hops[0][1], s=hops[0][0].name)
            through = self._listing([self._step(e, a) for e, a in hops[1:-1]]) or last
            form = self.rng.choice(self.forms["chain"])
            text = form.format(first=named, rest=through if "{last}" in form else rest, last=last)
        else:
            text = self.rng.choice(self.forms["gather"]).format(s=entity.name, list=hops[0][1])
            extra = []
        return self._question(text, extra + hops, None)

    def _step(self, entity: Entity, attribute: str) -> str:
        return self.forms["step"].format(a=attribute, noun=self._noun(entity))

    def _introduce(self, entity: Entity, asked: str = "") -> tuple[str, str, list[Hop]]:
        """(noun, description, hops that confirm it) of an entity; no description when it is to be named."""
        places = [name for name in self._relations(entity) if self._spec((entity, name))["kind"] == "town"]
        ranged = [
            name
            for name in self.web.attributes(entity)
            if self._spec((entity, name))["type"] in ("year", "date")
        ]
        if not places or not ranged or asked in (places[0], ranged[0]) or self.rng.random() >= self.obscure:
            return self._noun(entity), "", []
        place, attribute = places[0], ranged[0]
        value = entity.values[attribute]
        year = value[0] if isinstance(value, tuple) else value
        low = year - self.rng.randint(1, 5)
        values = {"town": entity.values[place], "low": low, "high": low + self.rng.randint(5, 9)}
        if self.unique and self._fits_others(entity, place, attribute, values):
            return self._noun(entity), "", []
        if entity.kind == "person":
            text = self.rng.choice(self.forms["obscured_person"]).format(
                profession=self._job(entity), **values
            )
        else:
            form = self.rng.choice(self.forms["obscured"])
            text = form.format(noun=self._noun(entity), a=attribute, **values)
        space = "" if self.web.language == "zh" else " "
        return self._noun(entity), text + space, [(entity, place), (entity, attribute)]

    def _fits_others(self, entity: Entity, place: str, attribute: str, described: dict) -> bool:
        """Whether the description (place, range of years, and for people the profession) fits another one."""

        def fits(other: Entity) -> bool:
            value = other.values[attribute]
            year = value[0] if isinstance(value, tuple) else value
            same_job = self._job(other) == self._job(entity)
            in_range = described["low"] <= year <= described["high"]
            return other.values[place] == described["town"] and in_range and same_job

        return any(fits(other) for other in self.of_kind[entity.kind] if other is not entity)

    def _job(self, entity: Entity) -> str:
        jobs = (v for a, v in entity.values.items() if self._spec((entity, a))["type"] == "choice")
        return next(jobs, "") if entity.kind == "person" else ""

    def _gather(self) -> Question | None:
        """Several attributes of one entity; the others on its pages are distractors."""
        entity = self.rng.choice(self.with_many_values)
        _, description, extra = self._introduce(entity)
        names = [name for name in entity.values if (entity, name) not in extra]
        names = self.rng.sample(names, min(len(names), 2 if extra else 3))
        if description:
            text = description + self.forms["obscured_tail"]["gather"].format(list=self._listing(names))
        else:
            text = self.rng.choice(self.forms["gather"]).format(s=entity.name, list=self._listing(names))
        return self._question(text, extra + [(entity, name) for name in names], None)

    def _compare(self) -> Question | None:
        """Which of three entities has the largest value; all three values must be kept."""
        entities = self.rng.sample(self.of_kind[self.rng.choice(self.kinds)], 3)
        numeric = [
            a for a in entities[0].values if self._spec((entities[0], a))["type"] in ("number", "year")
        ]
        if not numeric:
            return self._gather()
        attribute = self.rng.choice(numeric)
        text = self.rng.choice(self.forms["compare"]).format(
            list=self._listing([e.name for e in entities]), a=attribute
        )
        if any(
            page.kind == "contradiction" for e in entities for page in self.pages_by_fact[e.name, attribute]
        ):
            return None  # which is the largest would depend on whom one believes
        best = max(entities, key=lambda e: e.values[attribute])
        return self._question(text, [(e, attribute) for e in entities], best.name)

    def _question(self, text: str, hops: list[Hop], answer: str | None) -> Question | None:
        """The question with its truth; None when a constraint excludes the only source of another hop.

        `answer` None: the value of the last hop.
        """
        constraints: list[str] = []
        excluded: list[str] = []
        facts: list[Fact] = []
        for hop in hops:
            found, constraint, site = self._truth(hop, answer is None and not constraints)
            facts += found
            constraints += [constraint] if constraint else []
            excluded += [site] if site else []
        if any(self.site_of[fact.source or ""] in excluded for fact in facts):
            return None
        last = [fact for fact in facts if fact.attribute == hops[-1][1]]
        return Question(
            id=content_id([text, constraints]),
            question=text,
            answer=answer or last[0].value,
            constraints=constraints,
            language=self.web.language,
            facts=facts,
        )

    def _truth(self, hop: Hop, may_constrain: bool) -> tuple[list[Fact], str | None, str | None]:
        """What must be kept about a hop, the user's constraint that decides it, and the site which that
        excludes.

        Kept is the right value, what the constraint asks for, or both sides of a conflict that nothing
        settles.
        """
        entity, attribute = hop
        pages = [page for page in self.pages_by_fact[entity.name, attribute] if page.title == entity.name]
        by_kind = {page.kind: page for page in pages}
        right = self._stated(by_kind["profile"], attribute)
        if "outdated" in by_kind and may_constrain and self.rng.random() < 0.3:
            if self.rng.random() < 0.5:
                old = self._stated(by_kind["outdated"], attribute)
                return [old], self.forms["before"].format(year=OLD_YEARS[1]), None
            return [right], self.forms["since"].format(year=NEW_YEARS[0]), None
        # A conflict about a relation would split the question: the next hop would start from two entities.
        is_relation = self._spec(hop)["type"] == "entity"
        if "contradiction" not in by_kind:
            return [right], None, None
        other = by_kind["contradiction"]
        if may_constrain and self.rng.random() < 0.6:
            return [right], self.forms["exclude"].format(site=other.site), other.site
        return [right] if is_relation else [right, self._stated(other, attribute)], None, None

    def _stated(self, page: Page, attribute: str) -> Fact:
        return next(fact for fact in page.facts if fact.attribute == attribute)
