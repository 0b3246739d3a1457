"""Twenty questions of people who use CI: is each answered as docs/questions.md says, in a browser, on the demo's month?

Those that need no more than the month and one pull request are followed in test_pages_agree.py, too.
"""

from __future__ import annotations

import asyncio
import json
from urllib.parse import urlsplit

import pytest
from yarl import URL

from bot.console.demo_past import write_past
from bot.demo import environment
from bot.demo.environment import Wanted
from bot.demo.scenario import Scenario
from tests.browser import chromium
from tests.demo import questions

QUESTIONS = 20
PATIENCE, AGAIN = (
    60,
    0.5,
)  # seconds: some pages are kept for a moment, and sums are made after what they count
LATER = {"Who broke the backend?"}  # needs the end of the scenario


def test_each_question_is_two_clicks_or_a_search_away():
    table = questions.read_table()
    assert len(table) == len({one.words for one in table}) == QUESTIONS
    for one in table:
        assert one.page
        assert one.shows
        assert len(one.clicks) <= (1 if one.searched else questions.MOST_CLICKS), one.words


@pytest.mark.nightly
async def test_the_pages_answer_in_a_browser():
    if chromium.find() is None:
        pytest.skip("no Chromium here")
    async with environment.running(Wanted(write_past=write_past)) as env, chromium.running() as tab:
        await Scenario(env).play()
        for one in questions.read_table():
            await questions.until_answered(env, one)
            await _open_in_browser(tab, env, one)
        assert tab.complaints == []


async def _open_in_browser(tab, env, question):
    """Press the key of the search box, or the links, and look where they lead."""
    await tab.open(f"{env.bot.url}/")
    if question.searched:
        await tab.press("/", 191)
        await _leads_on(tab, tab.call("Input.insertText", text=question.searched))
    for text in question.clicks:
        tab.loaded.clear()
        found = await tab.evaluate(
            "(link => link ? (link.click(), true) : false)"
            f"([...document.querySelectorAll('a')].find(each => each.textContent.trim().replace(/\\s+on GitHub$/, '') === {json.dumps(text)}))"
        )
        assert found, question.words
        await asyncio.wait_for(tab.loaded.wait(), PATIENCE)
    path = urlsplit(await tab.evaluate("location.href")).path
    assert URL(path, encoded=True).raw_path == URL(question.page, encoded=True).raw_path, question.words


async def _leads_on(tab, typing):
    await typing
    tab.loaded.clear()
    await tab.evaluate("document.activeElement.form.requestSubmit()")
    await asyncio.wait_for(tab.loaded.wait(), PATIENCE)
