"""The offline web: its truth must be checkable, its webs disjoint, its explorer and teacher honest."""

import asyncio
import json
from collections import Counter
from pathlib import Path

import pytest

from condensery.compaction import Compaction, facts_within
from condensery.facts import Fact, contains
from condensery.message import FunctionCall, Message, ToolCall
from condensery.summary import parse_summary
from data_synthesis.generate_web import WebConfig, generate_web, main
from data_synthesis.question import Question, question_from_row
from data_synthesis.rollout import LAST_CALL
from data_synthesis.scripted import OracleTeacher, oracle_summary, scripted_explorer
from data_synthesis.web import Web, load_web, words
from data_synthesis.web_generator import WebGenerator
from data_synthesis.web_questions import QuestionGenerator
from data_synthesis.web_tools import WebTools, best_sentences


def make(**fields):
    config = {"output_dir": "-", "num_questions": 40, "num_entities": 120, "seed": 5} | fields
    return generate_web(WebConfig(**config))


@pytest.fixture(scope="module", params=["en", "zh"])
def world(request):
    pages, questions = make(language=request.param)
    return Web(pages, request.param), questions


def test_every_fact_stands_in_its_page(world):
    web, _ = world
    for page in web.pages.values():
        for fact in page.facts:
            assert fact.source == page.id and fact.stands_in("\n".join(page.sentences)), (page, fact)


def test_same_seed_same_bytes_other_seed_other_pages():
    assert make() == make()
    assert make(seed=6)[0] != make()[0]


@pytest.mark.parametrize("language", ["en", "zh"])
def test_held_out_web_shares_no_entity_and_no_page(language):
    train, _ = make(language=language)
    held_out, _ = make(language=language, part="held_out", phrasing="unseen")
    assert not {page.title for page in train} & {page.title for page in held_out}
    assert not {f.subject for p in train for f in p.facts} & {f.subject for p in held_out for f in p.facts}
    assert not {s for p in train for s in p.sentences} & {s for p in held_out for s in p.sentences}


def test_misleading_pages_are_there(world):
    web, _ = world
    kinds = {page.kind for page in web.pages.values()}
    assert kinds == {"profile", "outdated", "contradiction", "negation", "repost", "twin"}


def test_questions_follow_from_their_facts(world):
    web, questions = world
    assert any(question.constraints for question in questions)
    for question in questions:
        assert question.facts and question.answer
        for fact in question.facts:
            assert fact in web.pages[fact.source].facts
            assert not any(web.pages[fact.source].site in c for c in question.constraints if "source" in c)


def test_obscured_questions_do_not_name_their_first_entity():
    _, questions = make(obscure=1.0, num_questions=60, num_entities=300)
    hidden = [q for q in questions if not contains(q.question, q.facts[0].subject)]
    assert len(hidden) > 15


def test_too_many_questions_for_a_small_web_is_an_error():
    web = WebGenerator(5, "zh", "train", "seen", num_entities=16)
    questions = QuestionGenerator(web, 5, max_hops=3, obscure=0.0)
    with pytest.raises(ValueError, match=r"only \d+ of 2000 questions fit this web; raise --num_entities"):
        list(questions.questions(2000))


def test_search_finds_the_page_and_survives_nonsense(world):
    web, questions = world
    facts = [fact for question in questions for fact in question.facts]
    found = [web.search(f"{fact.subject} {fact.attribute}", 3) for fact in facts]
    hits = sum(any(fact in page.facts for page in pages) for fact, pages in zip(facts, found))
    assert hits / len(facts) > 0.8
    assert web.search("zzzz 🦀", 3) == [] and web.search("", 3) == []


def test_words_pairs_chinese_characters():
    assert words("Harrow 1921 青石镇") == ["harrow", "1921", "青石", "石镇"]


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("search", "{}", 'needs a JSON object with "query"'),
        ("search", "[1]", 'needs a JSON object with "query"'),
        ("search", '{"query": [1]}', "list of strings"),
        ("visit", "not json", 'needs a JSON object with "url"'),
        ("bash", "{}", "unknown tool 'bash'"),
    ],
)
def test_bad_calls_are_answered_in_words(world, name, arguments, message):
    with pytest.raises(ValueError, match=message):
        asyncio.run(WebTools(world[0]).call(name, arguments))


def explore(web, question, max_calls=40):
    """Run the scripted explorer without compaction; its last message and the messages before it."""
    tools, messages = WebTools(web), [Message(role="user", content=question.question)]
    for _ in range(max_calls):
        reply = asyncio.run(scripted_explorer(question, messages))
        messages.append(reply.message)
        if not reply.message.tool_calls:
            return messages
        call = reply.message.tool_calls[0]
        content = asyncio.run(tools.call(call.function.name, call.function.arguments))
        messages.append(Message(role="tool", content=content, tool_call_id=call.id))
    raise AssertionError("the explorer does not end")


def test_explorer_reaches_every_fact_and_answers(world):
    web, questions = world
    for question in questions:
        messages = explore(web, question)
        assert question.answer in messages[-1].content
        seen = "\n".join(message.content for message in messages)
        assert all(fact.stands_in(seen) for fact in question.facts)


def test_explorer_searches_again_for_what_a_summary_lost(world):
    _, questions = world
    question = questions[0]
    fact = question.facts[0]
    kept = Message(role="user", content=f"{fact.subject} {fact.attribute} {fact.value}")
    lost = Message(role="user", content=question.question)
    first = asyncio.run(scripted_explorer(question, [lost])).message.tool_calls[0].function.arguments
    assert json.loads(first)["query"] == [f"{fact.subject} {fact.attribute}"]
    second = asyncio.run(scripted_explorer(question, [kept])).message
    assert not second.tool_calls or second.tool_calls[0].function.arguments != first


def test_oracle_keeps_every_fact_it_can_know_and_nothing_else(world):
    web, questions = world
    for question in questions:
        messages = explore(web, question)[1:-1]
        facts = web.facts_of(question, messages)
        compaction = Compaction(
            id="c", trajectory_id="t", question_id=question.id, index=0, task=question.question,
            language=question.language, expired=messages, facts=facts_within(facts, messages, None),
        )  # fmt: skip
        text = parse_summary(asyncio.run(OracleTeacher(questions)(compaction)).content).text
        assert text == oracle_summary(question, compaction)
        assert all(fact.stands_in(text) for fact in compaction.facts if fact.must_keep)
        assert not [fact for fact in compaction.facts if not fact.must_keep and fact.stands_in(text)]


def test_oracle_on_empty_history_says_so(world):
    _, questions = world
    compaction = Compaction(id="c", trajectory_id="t", question_id=questions[0].id, index=0, task="?",
                            expired=[Message(role="assistant", content="hm")])  # fmt: skip
    assert oracle_summary(questions[0].model_copy(update={"constraints": []}), compaction)


def test_command_writes_a_web_that_loads_and_refuses_to_overwrite(tmp_path, capsys):
    arguments = ["--output_dir", str(tmp_path / "web"), "--num_questions", "5", "--num_entities", "60"]
    assert main(arguments) == 0
    web = load_web(tmp_path / "web")
    rows = [json.loads(line) for line in (tmp_path / "web" / "questions.jsonl").read_text().splitlines()]
    assert len(rows) == 5 and all(question_from_row(row).facts for row in rows)
    assert web.language == "en"
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2
    assert "already holds a run" in capsys.readouterr().err


def test_a_place_that_cannot_be_written_is_one_line(tmp_path, capsys):
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit) as stop:
        main(["--output_dir", f"{tmp_path}/file/web", "--num_questions", "5", "--num_entities", "60"])
    message = capsys.readouterr().err
    assert stop.value.code == 2 and "Not a directory" in message and message.count("\n") == 1


def test_question_without_text_names_its_keys():
    with pytest.raises(ValueError, match="no 'question' text in the row; its keys are prompt, answer"):
        question_from_row({"prompt": "x", "answer": "y"})


def test_tool_call_messages_stay_readable():
    call = ToolCall(id="c", function=FunctionCall(name="search", arguments='{"query": ["青石"]}'))
    assert "青石" in Message(role="assistant", tool_calls=[call]).model_dump_json()


def test_an_easier_web_has_one_page_an_entity_and_none_that_misleads():
    pages, _ = make(facts_per_page=9, misleading=0.0)
    assert {page.kind for page in pages} == {"profile"}
    assert len({page.title for page in pages}) == len(pages)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_search_shows_the_sentence_that_states_what_is_asked(language):
    pages, _ = make(facts_per_page=9, misleading=0.0, language=language)
    shown = [
        fact.stands_in("\n".join(best_sentences(page, f"{fact.subject} {fact.attribute}", 1)))
        for page in pages
        for fact in page.facts
    ]
    assert sum(shown) / len(shown) > 0.9


def test_a_fact_that_only_the_head_of_a_result_seems_to_state_does_not_stop_the_teacher():
    fact = Fact(subject="Umber Museum", attribute="opening year", value="1998", source="p1")
    head = "[p7] Umber Museum - Travel Ledger, 1998: A walk passes Umber Museum. It is old."
    asked = Question(id="q", question="When did Umber Museum open?", answer="1998", facts=[fact])

    def summary(*results: str) -> str:
        expired = [Message(role="tool", content=text, tool_call_id="c") for text in results]
        compaction = Compaction(
            id="c", trajectory_id="t", question_id="q", index=0, task=asked.question, expired=expired
        )
        return oracle_summary(asked, compaction)

    assert fact.stands_in(summary(head))
    stated = "[p1] Umber Museum - Civic Register, 2003: Umber Museum opened in 1998."
    assert summary(head, stated) == summary(stated)


def test_asked_for_its_last_turn_the_explorer_answers_with_what_it_sees(world):
    web, questions = world
    last = Message(role="user", content=LAST_CALL)
    for question in questions:
        *messages, _ = explore(web, question)
        assert question.answer in asyncio.run(scripted_explorer(question, [*messages, last])).message.content
        early = asyncio.run(scripted_explorer(question, [messages[0], last])).message
        assert not early.tool_calls and early.content


@pytest.mark.parametrize("language", ["en", "zh"])
def test_large_webs_have_as_many_entities_as_asked_for_and_share_none_between_parts(language: str) -> None:
    train = WebGenerator(1, language, "train", "seen", num_entities=4000, joined_names=True)
    held_out = WebGenerator(1, language, "held_out", "seen", num_entities=4000, joined_names=True)
    names = [set(train.entities), set(held_out.entities)]
    assert all(len(each) > 3980 for each in names) and not names[0] & names[1]
    # A name inside another one would let a fact stand where it does not.
    texts = sorted(names[0], key=len)
    assert not [name for name in texts[:60] for other in texts if name != other and contains(other, name)]


def test_too_many_entities_are_an_error_that_names_what_there_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--output_dir", str(tmp_path / "web"), "--num_questions", "5", "--language", "zh"]
    assert main(words) == 0
    assert "300 entities were asked for" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main([*words[2:], "--output_dir", str(tmp_path / "big"), "--level", "2",
                           "--num_entities", "90000"])  # fmt: skip
    assert "num_entities is 90000; there are names for" in capsys.readouterr().err


def test_rates_choose_how_much_misleads_and_how_much_was_updated() -> None:
    def kinds(**rates: float) -> Counter[str]:
        web = WebGenerator(1, "en", "train", "seen", 300, **{"adversarial": 0.0, "updates": 0.0} | rates)
        return Counter(page.kind for page in web.pages)

    assert set(kinds()) == {"profile"}
    updated = kinds(updates=1.0)
    assert 0.3 * updated["outdated"] < updated["updated"] < 0.7 * updated["outdated"]
    some, many = kinds(adversarial=0.2), kinds(adversarial=0.8)
    for kind in ("contradiction", "negation", "repost", "twin"):
        assert 0 < some[kind] < many[kind]
    years = {
        kind: {page.year for page in WebGenerator(1, "en", "train", "seen", 300, updates=1.0).pages
               if page.kind == kind}
        for kind in ("outdated", "updated")
    }  # fmt: skip
    assert max(years["outdated"]) < min(years["updated"]) <= max(years["updated"]) < 2015


@pytest.mark.parametrize("level", [2, 3])
def test_harder_levels_describe_more_and_each_description_fits_one_entity(level: int) -> None:
    config = WebConfig(Path("unused"), num_questions=300, num_entities=900, level=level)
    pages, questions = generate_web(config)
    assert len({question.id for question in questions}) == 300
    plain = generate_web(WebConfig(Path("unused"), num_questions=300))[1]

    def hops(rows: list) -> float:
        return sum(len(question.facts or []) for question in rows) / len(rows)

    assert hops(questions) > hops(plain)
    by_id = {page.id: page for page in pages}
    for question in questions:
        for fact in question.facts or []:
            assert fact.stands_in("\n".join(by_id[fact.source or ""].sentences))
