"""A capability has conditions of its own: what it found is told once, for as long as it goes on saying so, and after."""

from __future__ import annotations

import sys

import pytest

from bot.core.feature import Feature
from bot.features import FEATURES
from tests import harness
from tests.harness import L3, UPSTREAM
from tests.notify.receiving import check, telling

pytestmark = pytest.mark.logic

FINDING = f"""
from bot.core.feature import Condition, Subject

found = []


async def read(context, tx, scope):
    about = Subject(repo="{UPSTREAM}", backend="{L3}", oncalls=("carol",), path="/{UPSTREAM}/bisects/7")
    return [
        Condition(event="culprit_found", key=key, holds=True, heading="npu is broken by #12", subject=about)
        for key in found
    ]
"""


@pytest.fixture
async def finding(inbox, settings, github, issuer, clock, tmp_path, monkeypatch):
    """A bot with a capability that finds what is in a list, and that list."""
    folder = tmp_path / "packages"
    folder.mkdir()
    (folder / "finding_culprits.py").write_text(FINDING)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "finding_culprits", raising=False)
    features = (*FEATURES, Feature(name="finding", conditions="finding_culprits:read"))
    chosen = telling(settings, inbox.receiver(events=("culprit_found",), oncall=("carol",)))
    async with harness.running(
        chosen, github=github, issuer=issuer, app=github.app, clock=clock, features=features
    ) as bot:
        import finding_culprits

        yield bot, finding_culprits.found


async def test_what_was_found_is_told_once(finding, inbox):
    bot, found = finding
    found.append("search 7")
    await check(bot)
    await check(bot)
    found.clear()
    await check(bot)
    found.append("search 7")
    await check(bot)

    [notice] = inbox.notices
    assert (notice["type"], notice["data"]["heading"]) == ("culprit_found", "npu is broken by #12")
    assert notice["data"]["url"].endswith(f"/{UPSTREAM}/bisects/7")


@pytest.mark.nightly
async def test_it_is_forgotten_a_month_after_it_was_last_said(finding, inbox):
    bot, found = finding
    found.append("search 7")
    await check(bot)
    for _ in range(40):
        bot.clock.advance(86_400)
        await check(bot)
    assert len(inbox.got) == 1
    assert len(await bot.rows("notice")) == 1

    found.clear()
    bot.clock.advance(40 * 86_400)
    await bot.settle()
    for kind in ("prune", "prune"):
        async with bot.store.transaction() as tx:
            tx.enqueue(kind, "")
        await bot.settle()
    assert await bot.rows("notice_told") == []
    assert [row for row in await bot.rows("notice") if row["event"] == "culprit_found"] == []
