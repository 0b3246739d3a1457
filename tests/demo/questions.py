"""The table of docs/questions.md, and following a line of it from `/` as its second column says."""

from __future__ import annotations

import asyncio
import html
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urljoin

from yarl import URL

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
