"""Questions about the bundled articles: the search tool finds what the model is to answer."""

import json
import random

from tasks.builtin import articles
from tasks.builtin.searches import query_of
from tasks.exchange import contains

from caesura.tools.config.caesura_toml import Config
from caesura.tools.dispatcher import Dispatcher
from caesura.tools.result import ToolCall


def test_an_article_is_cut_into_its_sentences():
    heading, name, sentences = articles.articles()["Mars"]
    assert (heading, name) == ("Planets > Mars", "planets.md")
    assert sentences[0] == "Mars is the fourth planet from the Sun."
    assert sentences[-1].endswith("covered by ice.")


async def test_the_search_tool_shows_the_sentence_that_answers_each_question():
    config = Config(tools={"search": {"corpus": "bundled"}})
    async with config.toolset(["search"]) as tools, Dispatcher(tools.registry) as dispatcher:
        for title, forms, part in articles.QUESTIONS:
            for form in forms.split("|"):
                query = json.dumps({"query": query_of(f"{form}?")})
                found = await dispatcher.run(ToolCall("1", "search", query))
                assert articles.sentence_of(title, part) in found.content, form


def test_what_is_learned_looks_like_what_the_tool_shows():
    rng = random.Random(1)
    for _ in range(200):
        said = articles.article(rng)
        (call,) = said.calls
        assert contains(call.result, said.answer[0])
        assert call.result.startswith("[1] ")
        assert ".md)\n" in call.result
