"""Issues that no delivery brought: older than the bot, or lost. They are found by searching."""

from __future__ import annotations

import pytest

from tests.evidence.disabled.issues import about, deliver, half_hour, platforms
from tests.harness import UPSTREAM


@pytest.fixture
async def silent(bot, github):
    """A bot that knows the repository, and to which GitHub delivers nothing about issues."""
    await deliver(bot, ("repository", {"action": "edited", "repository": about(bot)}))
    github.faults.add(method="HOOK", path="issues", drop=True, times=10_000)
    return bot


@pytest.mark.logic
async def test_issues_opened_before_the_installation_count(silent, github):
    await github.open_issue(UPSTREAM, "DISABLED test_a (C)", "platforms: linux")
    await github.open_issue(UPSTREAM, "We have disabled it")
    await github.open_issue(UPSTREAM, "DISABLED test_b (C)", by="mallory")
    await half_hour(silent)
    assert await platforms(silent) == {"test_a (C)": ["linux"]}
    assert len(await silent.rows("issue")) == 2


@pytest.mark.logic
async def test_more_than_a_page(silent, github):
    for number in range(101):
        await github.open_issue(UPSTREAM, f"DISABLED test_{number} (C)")
    await half_hour(silent)
    assert len(await platforms(silent)) == 101


@pytest.mark.logic
async def test_what_was_missed_later_is_repaired(silent, github):
    first = await github.open_issue(UPSTREAM, "DISABLED test_a (C)")
    second = await github.open_issue(UPSTREAM, "DISABLED test_b (C)")
    await half_hour(silent)
    stored = len(await silent.rows("delivery"))
    await half_hour(silent)
    assert len(await silent.rows("delivery")) == stored  # nothing new, nothing stored
    await github.close_issue(first)
    await github.edit_issue(second, body="platforms: win")
    await half_hour(silent)
    assert await platforms(silent) == {"test_b (C)": ["win"]}


@pytest.mark.logic
async def test_where_issues_may_not_be_read_nothing_else_suffers(silent, github):
    github.faults.add(path="/search/issues", status=403, times=100)
    await github.open_issue(UPSTREAM, "DISABLED test_a (C)")
    await half_hour(silent)
    assert await platforms(silent) == {}
    assert [row["error"] for row in await silent.rows("task") if row["state"] == "dead"] == []
