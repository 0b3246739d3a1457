"""Commit statuses at GitHub: the App asks for them where it was told to, and lost events are found."""

from __future__ import annotations

import json
import re

import pytest

from bot.demo.github.registration import manifest_problems
from bot.github import manifest
from tests.browser_of_pages import Visitor
from tests.console.test_init import github as init_github  # noqa: F401 - a fixture
from tests.console.test_init import init
from tests.harness import UPSTREAM
from tests.jobs.branch import push
from tests.providers.test_stories import grid
from tests.serving import SQLITE


@pytest.mark.parametrize("role", ["one", "upstream"])
def test_statuses_are_asked_for_only_where_they_are_wanted(role):
    plain, more = manifest.manifest_for(role), manifest.manifest_for(role, statuses=True)
    assert "status" not in plain.events
    assert "statuses" not in plain.granted
    assert set(more.events) - set(plain.events) == {"status"}
    assert more.granted == plain.granted | {"statuses": "read"}
    sent = more.as_sent(name="x", public_url="https://a.example", redirect_url="http://127.0.0.1:1/created")
    assert manifest_problems(sent, set()) == []
    assert manifest.unneeded(plain.useful, more.granted) == []  # granted later it is no surplus
    assert manifest.unneeded(plain.useful, {"statuses": "write"}) == ["statuses: write"]


async def test_init_asks_for_statuses(init_github, tmp_path):  # noqa: F811
    async with init(init_github, tmp_path, "--statuses") as running, Visitor() as visitor:
        page = await visitor.open(await running.address())
        assert "commit statuses, as Jenkins" in page.text
        asked = json.loads(dict(page.forms[0]["fields"])["manifest"])
    assert asked["default_permissions"]["statuses"] == "read"
    assert "status" in asked["default_events"]


async def push_commit(bot, github):
    """A commit on main, at GitHub and here."""
    repo = github.state.repo(UPSTREAM)
    sha = github.set_file(repo, "README.md", "news")
    event, body = push(bot, sha)
    body["before"] = "0" * 40
    await bot.send(event, body)
    await bot.settle()
    return sha


@SQLITE
async def test_a_status_set_at_github_is_a_cell_of_the_grid(bot, github):
    sha = await push_commit(bot, github)
    await github.set_status(UPSTREAM, sha, "azure/linux", "pending", target_url="https://dev.azure.test/1")
    await bot.settle()
    assert await grid(bot) == {"statuses / azure/linux": "?"}
    (row,) = await bot.rows("provider_job")
    assert (row["branch"], row["url"]) == ("main", "https://dev.azure.test/1")


@SQLITE
async def test_the_end_of_a_status_that_was_never_heard_of_is_found(bot, github):
    sha = await push_commit(bot, github)
    await github.set_status(UPSTREAM, sha, "azure/linux", "pending")
    await bot.settle()
    bot.app.webhook_url = None
    bot.clock.advance(5)
    await github.set_status(UPSTREAM, sha, "azure/linux", "failure", description="2 tests failed")
    for _ in range(4):
        await bot.wait(700)
    assert await grid(bot) == {"statuses / azure/linux": "X"}
    asked = [call for call in github.calls if re.search(r"/commits/[0-9a-f]{40}/status$", call.path)]
    assert 0 < len(asked) < 3  # not again once it has ended
