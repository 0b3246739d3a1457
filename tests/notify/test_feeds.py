"""Feeds are valid Atom with stable ids; badges say a word, and nothing of what is private."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest

from bot.pages.site.feeds import ATOM_NAMESPACE, draw_badge, make_feed
from tests.harness import L2, L3, UPSTREAM
from tests.jobs.branch import deliver, job, push
from tests.notify.receiving import check
from tests.notify.stories import turn_red
from tests.notify.test_formats import HOSTILE, notice
from tests.pages.test_private_names import said_to_be

NS = {"a": ATOM_NAMESPACE}


async def fetch(bot, path, **headers):
    async with bot.http.get(bot.url + path, headers=headers) as answer:
        return answer.status, answer.headers, await answer.text()


def require_atom(text):
    """Check what RFC 4287 demands of a feed."""
    feed = ET.fromstring(text)
    for parent in (feed, *feed.iterfind("a:entry", NS)):
        for name in ("id", "title", "updated"):
            assert len(parent.findall(f"a:{name}", NS)) == 1, name
        assert parent.find("a:link[@rel='alternate']", NS) is not None
    assert feed.find("a:author/a:name", NS) is not None
    assert feed.find("a:link[@rel='self']", NS) is not None
    return feed


@pytest.mark.logic
async def test_a_backends_feed_has_its_notices_and_an_etag(bot):
    await turn_red(bot)
    await check(bot)
    status, headers, text = await fetch(bot, f"/oot/{L3}/feed.atom")

    assert (status, headers["Content-Type"]) == (200, "application/atom+xml; charset=utf-8")
    feed = require_atom(text)
    [entry] = feed.findall("a:entry", NS)
    assert entry.find("a:title", NS).text == "npu (L3) turned red"
    [row] = await bot.rows("notice_told")
    assert entry.find("a:id", NS).text == f"urn:uuid:{row['notice_id']}"
    again = await fetch(bot, f"/oot/{L3}/feed.atom", **{"If-None-Match": headers["ETag"]})
    assert (again[0], again[2]) == (304, "")
    assert require_atom((await fetch(bot, f"/oot/{L2}/feed.atom"))[2]).findall("a:entry", NS) == []
    assert (await fetch(bot, "/oot/no/body/feed.atom"))[0] == 404
    assert (await fetch(bot, "/oot/no/backend/feed.atom"))[0] == 404


@pytest.mark.logic
async def test_a_branch_has_a_feed_and_a_badge(bot):
    await deliver(bot, push(bot, "A"), push(bot, "B", parent="A", at=10), job(bot, "lint", "B"))
    for query in ("", "?branch=main"):
        status, _, text = await fetch(bot, f"/{UPSTREAM}/feed.atom{query}")
        assert status == 200
        assert require_atom(text).find("a:title", NS).text == f"main of {UPSTREAM}"
        status, headers, text = await fetch(bot, f"/{UPSTREAM}/badge.svg{query}")
        assert (status, headers["Content-Type"]) == (200, "image/svg+xml; charset=utf-8")
        assert headers["Cache-Control"] == "public, max-age=60"
        assert "main: green" in text
    assert (await fetch(bot, f"/{UPSTREAM}/feed.atom?branch=none"))[0] == 404
    assert ">unknown<" in (await fetch(bot, f"/{UPSTREAM}/badge.svg?branch=none"))[2]


async def test_a_backends_badge_says_its_pass_rate(bot, github):
    await turn_red(bot)
    _, headers, text = await fetch(bot, f"/oot/{L3}/badge.svg")
    assert "npu L3: 75 % in 30 d" in text
    assert (await fetch(bot, f"/oot/{L3}/badge.svg", **{"If-None-Match": headers["ETag"]}))[0] == 304
    ET.fromstring(text)

    unknown = (await fetch(bot, "/oot/nobody/knows/badge.svg"))[2]
    assert "unknown" in unknown
    await said_to_be(bot, github, L3, private=True)
    token = {"Authorization": f"Bearer {bot.context.settings.admin_token}"}
    assert (await fetch(bot, f"/oot/{L3}/badge.svg"))[2] == unknown
    assert (await fetch(bot, f"/oot/{L3}/badge.svg", **token))[2] == unknown


@pytest.mark.logic
async def test_where_upstream_is_private_everything_is_unknown(bot, github):
    await deliver(bot, push(bot, "A"), job(bot, "lint", "A"))
    await said_to_be(bot, github, UPSTREAM, private=True)
    assert "unknown" in (await fetch(bot, f"/{UPSTREAM}/badge.svg"))[2]
    assert "unknown" in (await fetch(bot, f"/oot/{L3}/badge.svg"))[2]
    assert (await fetch(bot, f"/{UPSTREAM}/feed.atom"))[0] == 404


def test_hostile_words_break_neither_feed_nor_badge():
    text = HOSTILE + "</title>\ufffe\ud800"
    feed = require_atom(make_feed([notice(heading=text, lines=[text])], title=text, url="https://bot.example",
                                  address="/a?b=c&d", page="/x"))  # fmt: skip
    assert "</title>" in feed.find("a:title", NS).text
    ET.fromstring(draw_badge(HOSTILE, '"><script>', "bad"))
