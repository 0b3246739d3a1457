"""The demo's month: do its pages agree, lead on, answer the questions of docs/questions.md, and show what happened?"""

from __future__ import annotations

import asyncio
import html
import json
import re
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import pytest
from yarl import URL

from bot.console.demo_past import write_past
from bot.demo import buildkite, environment, own_ci, participants, trunk_history
from bot.demo.environment import Wanted
from bot.demo.scenario import Scenario
from tests import shown_facts
from tests.browser import chromium
from tests.walk import find_dead_links, walk

# The table of docs/questions.md, and following a line of it from `/` as its second column says.


DOCUMENT = Path(__file__).parents[2] / "docs" / "questions.md"
STEP = re.compile(r"search `([^`]+)`|\*([^*]+)\*")
LINK = re.compile(r'<a [^>]*href="([^"]*)"[^>]*>(.*?)</a>', re.DOTALL)
MOST_CLICKS = 2
ON_GITHUB = " on GitHub"  # said to screen readers after a link that leads there
PATIENCE, AGAIN = (
    60,
    0.5,
)  # seconds: some pages are kept for a moment, and sums are made after what they count


@dataclass(frozen=True)
class Question:
    """A line of the table."""

    words: str
    searched: str  # empty: no search
    clicks: tuple[str, ...]  # texts of links
    page: str
    shows: tuple[str, ...]


def read_table():
    """Return every question of the document."""
    rows = [line for line in DOCUMENT.read_text().splitlines() if line.startswith("|")][2:]
    return [_question(*(cell.strip() for cell in row.strip("|").split(" | "))) for row in rows]


def _question(words, steps, page, shows):
    found = STEP.findall(steps)
    return Question(
        words, next((searched for searched, _ in found if searched), ""),
        tuple(link for _, link in found if link), page.strip("` "), tuple(re.findall(r"`([^`]+)`", shows)),
    )  # fmt: skip


def text_of(page):
    """Return what a person reads on a page."""
    page = re.sub(r"<(script|style)\b.*?</\1>", " ", page, flags=re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page)).split())


async def open_page(http, url):
    """Return the address that one leads to, and its page."""
    async with http.get(url) as answer:
        assert answer.status == 200, (url, answer.status)
        return str(answer.url), await answer.text()


async def follow(http, base, question):
    """Follow the steps from `/`; returns the address they lead to and what stands there."""
    url, page = await open_page(http, f"{base}/")
    if question.searched:
        assert 'name="q"' in page
        async with http.get(f"{base}/search", params={"q": question.searched}) as answer:
            url, page = str(answer.url), await answer.text()
    for text in question.clicks:
        target = next(
            (href for href, inner in LINK.findall(page) if text_of(inner).removesuffix(ON_GITHUB) == text),
            None,
        )
        assert target is not None, f"{question.words} {url} has no link {text!r}"
        url, page = await open_page(http, urljoin(url, html.unescape(target)))
    return url, text_of(page)


async def until_answered(env, question):
    """Follow a question's steps until the page answers it."""
    until = asyncio.get_running_loop().time() + PATIENCE
    while True:
        try:
            url, text = await follow(env.http, env.bot.url, question)
            assert URL(url).raw_path == URL(question.page, encoded=True).raw_path, question.words
            missing = [words for words in question.shows if words.casefold() not in text.casefold()]
            assert not missing, (question.words, url, missing)
        except AssertionError:
            if asyncio.get_running_loop().time() > until:
                raise
            await asyncio.sleep(AGAIN)
        else:
            return


# The demo's month: do all pages, and their JSON, say the same of what two of them show, and do all links lead on?


START = (
    f"/{participants.UPSTREAM}", f"/hud/{participants.UPSTREAM}/main", "/failures", "/oot", "/oot/metrics",
    "/oot/levels",
)  # fmt: skip
SEVERAL = (
    "broken since", "last good", "failures in a row", "red commits", "full result", "commits that count",
    "jobs", "failed", "machine hours", "Flaky", "Broken", "took", "queued", "upstream's jobs passed",
    "pass rate", "Failed", "Runs", "cpu avg", "memory avg", "gpu avg", "total of Failed", "gate", "mark",
)  # facts that stand in several places of the demo: none of them may get lost on the way to the comparison  # fmt: skip
SOME = 8  # pages of one kind that are opened by default
LATER = {  # pages that answer a question (docs/questions.md) later in the scenario: nightly, in a browser
    f"/{participants.UPSTREAM}/pull/2",
    f"/{participants.UPSTREAM}/bisects",
    f"/{participants.UPSTREAM}/disabled",
    f"/oot/{participants.NPU}/tests",
}
AGAIN, LONG_ENOUGH = 10, 110  # seconds; sums of days are made within a minute of what happens


@pytest.mark.nightly
async def test_what_two_pages_show_is_the_same_and_questions_are_answered():
    await check(_play_some, alike=SOME)


@pytest.mark.nightly
async def test_what_two_of_all_pages_show_is_the_same():
    await check(Scenario.play, alike=10_000)


async def check(play, *, alike):
    async with environment.running(Wanted(write_past=write_past)) as env:
        await play(Scenario(env))
        until = time.monotonic() + LONG_ENOUGH
        while True:
            pages = await walk(env.http, env.bot.url, start=START, alike=alike)
            found, compared = shown_facts.disagreements(pages), shown_facts.compared(pages)
            missing = [name for name in SEVERAL if not compared[name]]
            if not (found or missing) or time.monotonic() > until:
                break
            await asyncio.sleep(AGAIN)
        dead = await find_dead_links(env.http, env.bot.url, pages, alike=alike)
        for question in read_table() if alike == SOME else ():
            if question.page not in LATER:
                await until_answered(env, question)
    assert found == {}
    assert missing == []
    assert dead == []


async def _play_some(scenario):
    """Play what the facts need: the month, a backend that is re-run, a job whose machine is watched."""
    await scenario.environment.ready()
    await trunk_history.send_history(scenario.environment)
    await scenario.open_pull_request()
    await asyncio.gather(_fail_and_rerun(scenario), own_ci.measure(scenario))


async def _fail_and_rerun(scenario):
    await scenario.blocking_failure()
    await scenario.add_label()
    await scenario.rerun()


# Twenty questions of people who use CI: is each answered as docs/questions.md says, in a browser, on the demo's month?


QUESTIONS = 20


def test_each_question_is_two_clicks_or_a_search_away():
    table = read_table()
    assert len(table) == len({one.words for one in table}) == QUESTIONS
    for one in table:
        assert one.page
        assert one.shows
        assert len(one.clicks) <= (1 if one.searched else MOST_CLICKS), one.words


@pytest.mark.nightly
async def test_the_pages_answer_in_a_browser():
    if chromium.find() is None:
        pytest.skip("no Chromium here")
    async with environment.running(Wanted(write_past=write_past)) as env, chromium.running() as tab:
        await Scenario(env).play()
        for one in read_table():
            await until_answered(env, one)
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


# The demo's month of pushes, as the grid shows it.


GRID = f"/hud/{participants.UPSTREAM}/main"
DOCS = "docs / build-docs (python)"
OPERATORS = "buildkite / fastcheck / :npu: Operators"
BACKEND = f"backends / {participants.RISCV} / Nightly / test (vector)"


async def test_the_grid_shows_a_breakage_flakes_an_outage_and_a_backend_that_broke():
    async with environment.running() as env:
        await env.ready()
        await trunk_history.send_history(env)
        columns = await settled(env)
        async with env.http.get(env.bot.url + GRID) as answer:
            page = await answer.text()
        async with env.http.get(f"{env.bot.url}/{participants.UPSTREAM}/queue") as answer:
            queue = await answer.text()
    mac = columns["trunk / macos-py3-arm64 / test (default)"]
    assert mac[20:27] == "OXXXXXO"  # newest first: 5 pushes, then the one that reverts
    assert columns["pull / linux-jammy-cuda12.8-py3.10 / test (default)"].count("F") == 2
    assert columns[OPERATORS][:10] == "?XXXOOOFOO"
    assert columns["buildkite / fastcheck / :books: Docs"][4:7] == "OAO"
    outage = [cells[12] for cells in columns.values()]
    assert outage.count("X") == 11
    assert columns[BACKEND].startswith(f" XXX{' ' * 14}O")
    assert "watching backend" in page
    assert "queue=npu: 1 agent connected; 1 lost" in queue
    assert "many failed at once" in page
    assert "?" in "".join(cells[0] for cells in columns.values())


async def settled(env):
    """Each column's characters, newest first, once everything has been handled."""
    async with asyncio.timeout(60):
        while True:
            async with env.http.get(f"{env.bot.url}/api/ci{GRID}") as answer:
                body = await answer.json()
            if answer.ok and len(body["lines"]) >= trunk_history.PUSHES:
                found = {
                    one["name"]: "".join(
                        line["cells"].get(str(at), {"c": " "})["c"] for line in body["lines"]
                    )
                    for at, one in enumerate(body["columns"])
                }
                newest = found.get(DOCS, " ")[: trunk_history.PUSHES]
                newest += found.get(OPERATORS, " ")[: buildkite.PUSHES]
                if " " not in newest and BACKEND in found:
                    return found
            await asyncio.sleep(0.1)
