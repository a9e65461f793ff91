"""Histories with known facts and an honest summary, in which every kind of damage can be done."""

from condensery.compaction import Compaction
from condensery.facts import Fact
from condensery.message import FunctionCall, Message, ToolCall

PAGES = """\
[p101] Amber Bay - Valley Post, 2018: In 2018, Amber Bay had 12,345 inhabitants. Readers asked for more.
[p102] Amber Bay - Open Almanac, 2003: In 2003, Amber Bay had 11,002 inhabitants. The weather is mild.
[p103] Amber Bay - Valley Post, 2016: The mayor of Amber Bay is Alden Marsh. A song mentions it.
[p104] Amber Bay - Valley Post, 2012: The mayor of Amber Bay is not Berta Holt, as older books have it.
[p105] Linden Ford - Civic Register, 2020: In 2020, Linden Ford had 54,321 inhabitants. \
Linden Ford lies 321 m above sea level. Linden Ford is led by mayor Caspar Fenn."""
TASK = "Collect for Amber Bay: population, mayor, elevation.\n- Use only figures from 2015 or later."
HONEST = """\
Keep: Use only figures from 2015 or later.
- [p101] In 2018, Amber Bay had 12,345 inhabitants.
- [p103] The mayor of Amber Bay is Alden Marsh.
Open: elevation of Amber Bay
Tried without result: search Amber Bay elevation"""
PAGES_ZH = """\
[p101] 琥珀镇 - 山谷邮报，2018年：2018年琥珀镇有12345人。读者还想知道更多。
[p102] 琥珀镇 - 公开年鉴，2003年：2003年琥珀镇有11002人。天气温和。
[p103] 琥珀镇 - 山谷邮报，2016年：琥珀镇的镇长是李明。
[p105] 菩提镇 - 市民登记，2020年：2020年菩提镇有54321人。菩提镇的镇长是王芳。菩提镇海拔321米。"""
TASK_ZH = "请收集琥珀镇的人口、镇长、海拔。\n- 只使用2015年及以后的数字。"
HONEST_ZH = """\
约束：只使用2015年及以后的数字。
- [p101] 2018年琥珀镇有12345人。
- [p103] 琥珀镇的镇长是李明。
待查：琥珀镇的海拔
已搜索无果：琥珀镇 海拔"""


def fact(text: str, must_keep: bool = False) -> Fact:
    """subject | attribute | value | source | year"""
    subject, attribute, value, source, year = (part.strip() for part in text.split("|"))
    return Fact(
        subject=subject,
        attribute=attribute,
        value=value,
        source=source,
        condition=year or None,
        must_keep=must_keep,
    )


FACTS = [
    fact("Amber Bay | population | 12,345 | p101 | 2018", must_keep=True),
    fact("Amber Bay | mayor | Alden Marsh | p103 |", must_keep=True),
    fact("Amber Bay | population | 11,002 | p102 | 2003"),
    fact("Amber Bay | mayor | Berta Holt | p104 |"),
    fact("Linden Ford | population | 54,321 | p105 | 2020"),
    fact("Linden Ford | elevation | 321 m | p105 |"),
    fact("Linden Ford | mayor | Caspar Fenn | p105 |"),
]
FACTS_ZH = [
    fact("琥珀镇 | 人口 | 12345人 | p101 | 2018", must_keep=True),
    fact("琥珀镇 | 镇长 | 李明 | p103 |", must_keep=True),
    fact("琥珀镇 | 人口 | 11002人 | p102 | 2003"),
    fact("菩提镇 | 人口 | 54321人 | p105 | 2020"),
    fact("菩提镇 | 镇长 | 王芳 | p105 |"),
    fact("菩提镇 | 海拔 | 321米 | p105 |"),
]


def compaction(
    pages: str = PAGES, task: str = TASK, facts: list[Fact] | None = None, language: str = "en"
) -> Compaction:
    call = ToolCall(
        id="c", function=FunctionCall(name="search", arguments='{"query": ["Amber Bay elevation"]}')
    )
    return Compaction(
        id="compaction",
        trajectory_id="trajectory",
        question_id="question",
        index=0,
        language=language,
        task=task,
        expired=[
            Message(role="assistant", content="Next: the elevation of Amber Bay.", tool_calls=[call]),
            Message(role="tool", tool_call_id="c", content=pages),
        ],
        facts=FACTS if facts is None else facts,
    )


def chinese() -> Compaction:
    return compaction(PAGES_ZH, TASK_ZH, FACTS_ZH, "zh")
