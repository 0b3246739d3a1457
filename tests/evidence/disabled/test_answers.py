"""Our answer on an issue: one comment, edited in place, only where the App may write it."""

from __future__ import annotations

import pytest

from bot.evidence.disabled import answers as answer_text
from tests.evidence.disabled.issues import deliver, half_hour, issue, may_write, platforms
from tests.harness import L3, UPSTREAM

X = "test_x (__main__.TestX)"


@pytest.fixture
async def granted(bot, github):
    """A bot that knows its installation, which may write on issues."""
    installation = github.state.installation(github.app, UPSTREAM.partition("/")[0])
    await github.announce_installation(installation, "created")
    await bot.settle()
    return bot


def answers(github, issue):
    return [comment.body for comment in github.comments(issue)]


@pytest.mark.logic
async def test_an_issue_gets_one_answer_that_is_edited(granted, github):
    issue = await github.open_issue(UPSTREAM, f"DISABLED {X}", "platforms: linux, amiga")
    await granted.settle(horizon=60)
    (said,) = answers(github, issue)
    assert said.splitlines() == [
        answer_text.MARKER,
        "**While this issue is open, this test is skipped:**",
        "",
        "- `test_x (__main__.TestX)` on `linux`",
        "",
        "Not understood:",
        "- unknown platform: amiga",
        "",
        "Close this issue to undo it. A pull request that says it closes this issue is exempt.",
        "",
        f"[All of them]({granted.context.settings.url}/{UPSTREAM}/disabled)",
    ]
    await github.edit_issue(issue, body="")
    await granted.settle(horizon=60)
    await half_hour(granted)
    (said,) = answers(github, issue)
    assert "everywhere" in said
    assert "Not understood" not in said


@pytest.mark.logic
async def test_an_issue_without_effect_is_told_why(granted, github):
    issue = await github.open_issue(UPSTREAM, f"DISABLED {X}", by="mallory")
    await granted.settle(horizon=60)
    (said,) = answers(github, issue)
    assert "disables nothing" in said
    assert "mallory has no write access" in said


async def test_an_answer_that_was_lost_is_found_again(granted, github):
    github.faults.add(method="POST", path="/comments", when="after", drop=True)
    issue = await github.open_issue(UPSTREAM, f"DISABLED {X}")
    await granted.settle(horizon=600)
    assert len(answers(github, issue)) == 1
    assert len((await granted.rows("ci_disabling_comment"))[0]["digest"]) == 64


@pytest.mark.logic
@pytest.mark.parametrize("level", ["read", None])
async def test_nothing_is_written_without_the_permission(bot, github, level):
    installation = github.state.installation(github.app, UPSTREAM.partition("/")[0])
    if level:
        installation.permissions["issues"] = level
        await github.announce_installation(installation, "created")
    issue = await github.open_issue(UPSTREAM, f"DISABLED {X}")
    await bot.settle(horizon=60)
    await half_hour(bot)
    assert answers(github, issue) == []
    assert [call for call in github.calls if call.method == "POST" and "/comments" in call.path] == []
    assert X in (await bot.get(f"/{UPSTREAM}/disabled"))[1]


def test_words_from_outside_are_inert():
    entry = {
        "repository_id": 1, "number": 1, "kind": "job", "unstable": True, "title": "", "author": "a", "url": None,
        "listed": True, "entries": [["@everyone `x` <img src=x> / [a](javascript:b)", []]],
        "problems": ["unknown platform: @team <b>"], "created_at": 0, "updated_at": 0,
    }  # fmt: skip
    said = answer_text.render_answer(entry, "https://bot.example.org/o/r/disabled")
    assert "may fail" in said
    assert not any(text in said for text in ("@everyone", "@team", "<b>"))


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
