"""Our answer on an issue: one comment, edited in place, only where the App may write it."""

from __future__ import annotations

import pytest

from bot.evidence.disabled import answers as answer_text
from tests.evidence.disabled.issues import half_hour
from tests.harness import UPSTREAM

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
