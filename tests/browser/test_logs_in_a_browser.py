"""Pages of jobs, logs and failures in a real browser: light and dark, phone and desktop."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests import harness
from tests.browser import chromium, log_story
from tests.browser.test_pages_in_a_browser import LOOKS, check
from tests.serving import SQLITE

pytestmark = pytest.mark.skipif(chromium.find() is None, reason="no Chromium here: apt-get install chromium")


@pytest.fixture
async def bot(settings, github, issuer, clock):
    """A bot that collects."""
    chosen = replace(settings, of_features={})
    async with harness.running(chosen, github=github, issuer=issuer, app=github.app, clock=clock) as made:
        yield made


@SQLITE
@LOOKS
async def test_pages_of_logs_have_nothing_that_troubles_a_reader(bot, github, looks):
    pages = await log_story.tell(bot, github)
    async with chromium.running() as tab:
        found = await check(bot, tab, pages, looks)
        assert found == [], "\n".join(found)
        assert tab.complaints == []  # no error in the console, no violation of the policy
