"""The line of `ootbot doctor` about answers on issues."""

from __future__ import annotations

import pytest

from bot.evidence.disabled import answers
from bot.ops.doctor import AppUnderTest, Target
from tests.harness import SECRET, UPSTREAM

pytestmark = pytest.mark.logic


async def line(bot):
    context = bot.context
    app = AppUnderTest(role="one", github=context.github, secret=SECRET)
    target = Target(
        settings=context.settings, store=context.store, http=context.http, clock=context.clock, apps=(app,)
    )
    (found,) = await answers.check_answers(target)
    return found.status, found.detail


async def test_it_says_where_issues_get_no_answer(bot, github):
    assert await line(bot) == (
        "ok",
        f"issues get no answer in {UPSTREAM}: issues: write is not granted; /owner/repo/disabled says the same",
    )
    installation = github.state.installation(github.app, UPSTREAM.partition("/")[0])
    installation.repository_ids &= {github.state.repo(UPSTREAM).id}
    await github.announce_installation(installation, "created")
    await bot.settle()
    assert await line(bot) == ("ok", "issues that disable tests and jobs are answered")
