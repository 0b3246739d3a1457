"""The demo's month: do all pages, and their JSON, say the same of what two of them show, and do all links lead on?

By default tests/browser/test_pages_in_a_browser.py asks so of its story.
"""

from __future__ import annotations

import asyncio
import time

import pytest

from bot.console.demo_past import write_past
from bot.demo import environment, own_ci, participants, trunk_history
from bot.demo.environment import Wanted
from bot.demo.scenario import Scenario
from tests import shown_facts
from tests.demo import questions
from tests.walk import find_dead_links, walk

START = (
    f"/{participants.UPSTREAM}", f"/hud/{participants.UPSTREAM}/main", "/failures", "/oot", "/oot/metrics",
    "/oot/levels",
)  # fmt: skip
SEVERAL = (
    "broken since", "last good", "failures in a row", "red commits", "full result", "commits that count",
    "jobs", "failed", "machine hours", "Flaky", "Broken", "took", "queued", "upstream's jobs passed",
    "pass rate", "Failed", "Runs", "cpu avg", "memory avg", "gpu avg", "total of Failed", "gate", "mark",
)  # facts that stand in several places of the demo: none of them may get lost on the way to the comparison  # fmt: skip
SOME = 8  # pages of one kind that are opened by default
LATER = {  # pages that answer a question (docs/questions.md) later in the scenario: nightly, test_questions.py
    f"/{participants.UPSTREAM}/pull/2",
    f"/{participants.UPSTREAM}/bisects",
    f"/{participants.UPSTREAM}/disabled",
    f"/oot/{participants.NPU}/tests",
}
AGAIN, LONG_ENOUGH = 10, 110  # seconds; sums of days are made within a minute of what happens


@pytest.mark.nightly
async def test_what_two_pages_show_is_the_same_and_questions_are_answered():
    await check(_play_some, alike=SOME)


@pytest.mark.nightly
async def test_what_two_of_all_pages_show_is_the_same():
    await check(Scenario.play, alike=10_000)


async def check(play, *, alike):
    async with environment.running(Wanted(write_past=write_past)) as env:
        await play(Scenario(env))
        until = time.monotonic() + LONG_ENOUGH
        while True:
            pages = await walk(env.http, env.bot.url, start=START, alike=alike)
            found, compared = shown_facts.disagreements(pages), shown_facts.compared(pages)
            missing = [name for name in SEVERAL if not compared[name]]
            if not (found or missing) or time.monotonic() > until:
                break
            await asyncio.sleep(AGAIN)
        dead = await find_dead_links(env.http, env.bot.url, pages, alike=alike)
        for question in questions.read_table() if alike == SOME else ():
            if question.page not in LATER:
                await questions.until_answered(env, question)
    assert found == {}
    assert missing == []
    assert dead == []


async def _play_some(scenario):
    """Play what the facts need: the month, a backend that is re-run, a job whose machine is watched."""
    await scenario.environment.ready()
    await trunk_history.send_history(scenario.environment)
    await scenario.open_pull_request()
    await asyncio.gather(_fail_and_rerun(scenario), own_ci.measure(scenario))


async def _fail_and_rerun(scenario):
    await scenario.blocking_failure()
    await scenario.add_label()
    await scenario.rerun()
