"""A pull request that fixes a disabled test runs it: the lists for it leave out what it closes."""

from __future__ import annotations

import pytest

from tests.evidence.disabled.issues import deliver, half_hour, issue, may_write, platforms
from tests.harness import L3, UPSTREAM


@pytest.fixture
async def disabled(bot):
    """Two disabled tests of upstream, one of a backend."""
    may_write(bot, "erin")
    may_write(bot, "erin", repo=L3)
    await deliver(
        bot,
        issue(bot, 101, "DISABLED test_a (C)"),
        issue(bot, 102, "DISABLED test_b (C)"),
        issue(bot, 101, "DISABLED test_c (C)", repo=L3),
    )
    return bot


async def enabled(bot, pull, query=""):
    whole = await platforms(bot, query.replace("&", "?", 1))
    return sorted(whole.keys() - (await platforms(bot, f"?pr={pull.number}{query}")).keys())


@pytest.mark.logic
async def test_a_description_or_a_commit_message_enables_tests(disabled, github):
    described = await github.open_pull(UPSTREAM, body="Fixes #101 and <!-- fixes #102 -->")
    by_commit = await github.open_pull(UPSTREAM, title=f"Repair it\n\nCloses: {UPSTREAM.upper()}#102")
    other = await github.open_pull(UPSTREAM, body="See #101, fixes org/other#102")
    await disabled.settle(horizon=5)
    assert await enabled(disabled, described) == ["test_a (C)"]
    assert await enabled(disabled, by_commit) == ["test_b (C)"]
    assert await enabled(disabled, other) == []
    assert sorted(await platforms(disabled, "?pr=999")) == ["test_a (C)", "test_b (C)"]


async def test_a_further_issue_for_the_same_test_disables_it_again(disabled, github):
    pull = await github.open_pull(UPSTREAM, body="Fixes #101")
    await disabled.settle(horizon=5)
    whole = await platforms(disabled)
    assert [await enabled(disabled, pull) for _ in range(2)] == [["test_a (C)"]] * 2
    await deliver(disabled, issue(disabled, 103, "DISABLED test_a (C)"))
    assert await platforms(disabled) == whole
    assert await enabled(disabled, pull) == []


@pytest.mark.logic
async def test_issues_of_a_backend_are_enabled_by_their_full_name(disabled, github):
    pull = await github.open_pull(UPSTREAM, body=f"Fixes #101, fixes {L3}#101")
    await disabled.settle(horizon=5)
    assert await enabled(disabled, pull, f"&backend={L3}") == ["test_a (C)", "test_c (C)"]


@pytest.mark.logic
async def test_pull_requests_opened_before_the_issue_are_read_too(bot, github):
    pull = await github.open_pull(UPSTREAM, title="Fixes #101")
    await bot.settle()
    may_write(bot, "erin")
    await deliver(bot, issue(bot, 101, "DISABLED test_a (C)"))
    await half_hour(bot)
    assert await enabled(bot, pull) == ["test_a (C)"]


@pytest.mark.logic
async def test_a_new_head_is_read_again_and_another_issue_asks_nothing(disabled, github):
    pull = await github.open_pull(UPSTREAM)
    await disabled.settle(horizon=5)
    sha = await github.push(UPSTREAM, "topic", message="Fixes #102")
    await github.push_commit(pull, commit=sha)
    await disabled.settle(horizon=5)
    assert await enabled(disabled, pull) == ["test_b (C)"]
    read = [call for call in github.calls if call.path.endswith(f"/pulls/{pull.number}/commits")]
    await github.edit_title(pull, "Another title")
    await disabled.settle(horizon=5)
    again = [call for call in github.calls if call.path.endswith(f"/pulls/{pull.number}/commits")]
    assert len(again) == len(read) == 2


@pytest.mark.logic
async def test_where_commits_cannot_be_read_the_description_counts(disabled, github):
    github.faults.add(path="/commits", status=404, times=5)
    pull = await github.open_pull(UPSTREAM, title="Fixes #102", body="Fixes #101")
    await disabled.settle(horizon=5)
    assert await enabled(disabled, pull) == ["test_a (C)"]
