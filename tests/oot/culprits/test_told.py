"""People are told once of a culprit that was found, with the sentence of its page."""

import pytest

from tests import harness
from tests.harness import L3, UPSTREAM
from tests.notify.receiving import check, receiving, telling
from tests.oot.culprits.searched import broken_branch
from tests.oot.culprits.test_story import begin

pytestmark = pytest.mark.logic


async def test_a_culprit_is_told_once(settings, github, issuer, clock):
    async with receiving() as inbox:
        chosen = telling(settings, inbox.receiver(events=("culprit_found",)))
        async with harness.running(
            chosen, github=github, issuer=issuer, app=github.app, clock=clock, begun=True
        ) as bot:
            branch = await broken_branch(bot, github)
            await begin(bot, github)
            search = await branch.finish(broken_from=9)
            await check(bot)
            await check(bot)
    (notice,) = inbox.notices
    assert search["why"] in str(notice)
    assert f"/{UPSTREAM}/bisects/{search['id']}" in str(notice)
    assert L3 in str(notice)
