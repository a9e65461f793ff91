"""Generates the pages of an offline web from a seed: entities, relations, and the ways in which pages
mislead.

Beside pages that are right there are outdated ones beside newer ones, twins with near-equal numbers,
contradictions, negations and reposts, because these are what a summary confuses.
"""

import random
from dataclasses import dataclass, field
from typing import Any, Literal

from condensery.facts import Fact
from data_synthesis.web import Page
from data_synthesis.web_vocabulary import (
    aliases_of,
    draw_value,
    entity_names,
    load_vocabulary,
    near_value,
    write_value,
)

Part = Literal["train", "held_out"]
Phrasing = Literal["seen", "unseen"]
# Shares of attributes or entities that get a misleading page beside the right one.
TWIN, OUTDATED, CONTRADICTION, NEGATION, REPOST = 0.5, 1.0, 0.10, 0.12, 0.15
OLD_YEARS, BETWEEN_YEARS, NEW_YEARS = (1998, 2010), (2011, 2014), (2015, 2024)


@dataclass(frozen=True)
class Rates:
    """Shares of attributes (of entities, for twins) that get a misleading page beside the right one."""

    twin: float
    outdated: float
    contradiction: float
    negation: float
    repost: float
    twice_updated: float = 0.0

    @classmethod
    def of(cls, misleading: float, adversarial: float | None, updates: float | None) -> "Rates":
        """`misleading` scales the usual mixture; `adversarial` is the share of attributes with an opposite
        claim, a negation or a repost, and of entities with a twin; `updates` that of figures whose older
        values are on the web, too, half of them two."""
        against = misleading if adversarial is None else adversarial / (CONTRADICTION + NEGATION + REPOST)
        return cls(
            twin=misleading * TWIN if adversarial is None else adversarial,
            outdated=misleading * OUTDATED if updates is None else updates,
            contradiction=against * CONTRADICTION,
            negation=against * NEGATION,
            repost=against * REPOST,
            twice_updated=0.0 if updates is None else 0.5,
        )


@dataclass
class Entity:
    """`values` maps attributes to raw values (for relations an entity's name), `years` to figures' years."""

    name: str
    kind: str
    word: str
    values: dict[str, Any] = field(default_factory=dict)
    years: dict[str, int] = field(default_factory=dict)


class WebGenerator:
    """Builds `entities` (by name) and `pages` for one language, part and set of phrasings."""

    def __init__(
        self,
        seed: int,
        language: str,
        part: Part,
        phrasing: Phrasing,
        num_entities: int,
        facts_per_page: int = 2,
        misleading: float = 1.0,
        adversarial: float | None = None,
        updates: float | None = None,
        joined_names: bool = False,
    ) -> None:
        self.rng = random.Random(f"{seed} {language} {part} {phrasing}")
        self.language, self.part, self.phrasing = language, part, phrasing
        self.facts_per_page = facts_per_page
        self.rates = Rates.of(misleading, adversarial, updates)
        self.vocabulary = load_vocabulary(language)
        self.entities: dict[str, Entity] = {}
        self.pages: list[Page] = []
        self._draw_entities(num_entities, joined_names)
        for entity in list(self.entities.values()):
            self._write_pages(entity)
        self.rng.shuffle(self.pages)

    def attributes(self, entity: Entity) -> dict[str, dict]:
        return self.vocabulary["kinds"][entity.kind]["attributes"]

    def fact(self, entity: Entity, attribute: str, value: Any, year: int | None, source: str | None) -> Fact:
        spec = self.attributes(entity)[attribute]["value"]
        text = str(value) if spec["type"] == "entity" else write_value(spec, value, self.language)
        return Fact(
            subject=entity.name,
            attribute=attribute,
            value=text,
            source=source,
            condition=None if year is None else str(year),
            aliases=aliases_of(spec, text),
        )

    def _draw_entities(self, num_entities: int, joined_names: bool) -> None:
        """Kinds in equal numbers, towns and persons twice as many: they are what the others refer to.

        A kind has no more entities than names, unless these are joined. Raises ValueError when even then
        there are too few.
        """
        kinds = list(self.vocabulary["kinds"])
        weights = {kind: 2 if kind in ("person", "town") else 1 for kind in kinds}
        for kind in kinds:
            names = entity_names(self.vocabulary, kind, "names", self.part, joined_names)
            wanted = num_entities * weights[kind] // sum(weights.values())
            if joined_names and wanted > len(names):
                most = len(names) * sum(weights.values()) // weights[kind]
                raise ValueError(f"num_entities is {num_entities}; there are names for {most}")
            for name, word in self.rng.sample(names, min(len(names), wanted)):
                self.entities[name] = Entity(name, kind, word)
        self.names_of_kind = {
            kind: [entity.name for entity in self.entities.values() if entity.kind == kind] for kind in kinds
        }
        for entity in self.entities.values():
            self._draw_values(entity)

    def _draw_values(self, entity: Entity) -> None:
        for attribute, spec in ((name, body["value"]) for name, body in self.attributes(entity).items()):
            if spec["type"] == "entity":
                entity.values[attribute] = self.rng.choice(self.names_of_kind[spec["kind"]])
            else:
                entity.values[attribute] = draw_value(spec, self.rng)
            if spec.get("dated"):
                entity.years[attribute] = self.rng.randint(*NEW_YEARS)

    def _write_pages(self, entity: Entity) -> None:
        attributes = list(self.attributes(entity))
        self.rng.shuffle(attributes)
        for start in range(0, len(attributes), self.facts_per_page):
            chosen = attributes[start : start + self.facts_per_page]
            self._page(entity, "profile", [self._true(entity, name) for name in chosen])
        for attribute in attributes:
            self._mislead(entity, attribute)
        twins = self.vocabulary["kinds"][entity.kind].get("twins", [])
        if twins and self._happens(self.rates.twin):
            self._twin_page(entity, self.rng.choice(twins).format(word=entity.word), attributes)

    def _true(self, entity: Entity, attribute: str) -> tuple[str, Any, int | None]:
        return attribute, entity.values[attribute], entity.years.get(attribute)

    def _mislead(self, entity: Entity, attribute: str) -> None:
        spec = self.attributes(entity)[attribute]["value"]
        if spec.get("dated"):
            if not self._happens(self.rates.outdated):
                return
            old = near_value(spec, entity.values[attribute], self.rng)
            self._page(entity, "outdated", [(attribute, old, self.rng.randint(*OLD_YEARS))])
            if self.rates.twice_updated and self._happens(self.rates.twice_updated):
                between = near_value(spec, entity.values[attribute], self.rng)
                self._page(entity, "updated", [(attribute, between, self.rng.randint(*BETWEEN_YEARS))])
        elif self._happens(self.rates.contradiction):
            self._page(entity, "contradiction", [(attribute, self._wrong(entity, attribute), None)])
        elif self._happens(self.rates.negation):
            self._negation_page(entity, attribute)
        elif self._happens(self.rates.repost):
            origin = self.rng.choice(self.vocabulary["sites"])
            self._page(
                entity,
                "repost",
                [self._true(entity, attribute)],
                self.vocabulary["repost"].format(site=origin),
            )

    def _happens(self, share: float) -> bool:
        return self.rng.random() < share

    def _wrong(self, entity: Entity, attribute: str) -> Any:
        spec = self.attributes(entity)[attribute]["value"]
        if spec["type"] != "entity":
            return near_value(spec, entity.values[attribute], self.rng)
        taken = (entity.values[attribute], entity.name)
        return self.rng.choice([name for name in self.names_of_kind[spec["kind"]] if name not in taken])

    def _twin_page(self, entity: Entity, name: str, attributes: list[str]) -> None:
        twin = Entity(name, entity.kind, entity.word)
        statements = []
        for attribute in attributes[:2]:
            year = self.rng.randint(*NEW_YEARS) if attribute in entity.years else None
            statements.append((attribute, self._wrong(entity, attribute), year))
        self._page(twin, "twin", statements)

    def _negation_page(self, entity: Entity, attribute: str) -> None:
        page = self._page(entity, "negation", [])
        fact = self.fact(entity, attribute, self._wrong(entity, attribute), None, page.id)
        form = self.rng.choice(self.vocabulary["negation"][self.phrasing])
        page.sentences.insert(0, form.format(a=attribute, s=entity.name, v=fact.value))
        page.facts.append(fact)

    def _page(
        self, entity: Entity, kind: str, statements: list[tuple[str, Any, int | None]], prefix: str = ""
    ) -> Page:
        """A page with these statements and some noise. A figure's year is near the year of its page."""
        page_id = f"p{len(self.pages) + 101}"
        facts = [self.fact(entity, name, value, year, page_id) for name, value, year in statements]
        sentences = [self._sentence(entity, fact) for fact in facts]
        noise = self.rng.sample(self.vocabulary["noise"][self.phrasing], self.rng.randint(1, 2))
        sentences += [text.format(s=entity.name) for text in noise]
        self.rng.shuffle(sentences)
        years = [int(fact.condition) for fact in facts if fact.condition]
        page = Page(
            id=page_id,
            kind=kind,
            title=entity.name,
            site=self.rng.choice(self.vocabulary["sites"]),
            year=max(years) if years else self.rng.randint(2011, 2024),
            sentences=[prefix + sentences[0], *sentences[1:]] if prefix else sentences,
            facts=facts,
        )
        self.pages.append(page)
        return page

    def _sentence(self, entity: Entity, fact: Fact) -> str:
        forms = self.attributes(entity)[fact.attribute][self.phrasing]
        return self.rng.choice(forms).format(s=entity.name, v=fact.value, y=fact.condition)
