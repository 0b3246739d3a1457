"""When a job ran, as its backend says; what a repetition adds; and why it failed, as its backend sees it."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tests.harness import L2, UPSTREAM, replace
from tests.interop import client
from tests.samples import each
from tests.serving import SQLITE

pytestmark = [pytest.mark.logic, SQLITE]

TRIAGE = {
    "schema_version": 1,
    "category": "upstream",
    "confidence": "high",
    "summary": "aten::foo lost an overload",
    "suspected_upstream": {"pr": 12, "commit": "0e797b5a6acf"},
    "evidence": [
        {"test": "test_foo", "log_url": "https://ci.example/log", "excerpt": "no matching function"}
    ],
    "analyzer": {"name": "triage", "version": "1"},
    "analyzed_at": "2026-08-24T14:22:10Z",
}


@pytest.fixture
def preset():
    """All of this holds always."""
    return


@pytest.fixture
async def step(bot, github):
    await github.open_pull(UPSTREAM)
    await bot.settle()
    return client.of(bot, bot.dispatch(L2), check_run_id="77")


@pytest.fixture
def settings(settings):

    return replace(settings, oidc_audience=("ootbot", client.AUDIENCE))


def iso(milliseconds):
    return (
        datetime.fromtimestamp(milliseconds / 1000, UTC)
        .isoformat(timespec="milliseconds")
        .replace("+00:00", "Z")
    )


async def job(bot):
    _, answer = await bot.get(f"/api/oot/backends/{L2}")
    (found,) = answer["jobs"]
    return found


async def test_the_times_are_the_backends_and_the_durations_ours(bot, step):
    sent = bot.clock.now()
    bot.clock.advance(120)
    await step.started(started_at=iso(sent + 100_000))
    bot.clock.advance(60)
    await step.ended(completed_at=iso(sent + 170_000))
    found = await job(bot)
    assert (found["started_at"], found["completed_at"]) == (iso(sent + 100_000), iso(sent + 170_000))
    assert (round(found["queue_time"]), found["execution_time"], found["flags"]) == (120, 60, {})
    assert (found["reported_started_at"], found["reported_completed_at"]) == (
        found["started_at"],
        found["completed_at"],
    )


@pytest.mark.parametrize(
    ("began", "ended"),
    [(-61, 180), (130, 300), (170, 160), ("yesterday", 180), (181 + 60, 180), (7e12, 180)],
    ids=["before the dispatch", "in the future", "backwards", "no time", "begun in the future", "a number"],
)
async def test_times_that_cannot_be_true_are_flagged_and_ours_are_shown(bot, step, began, ended):
    sent = bot.clock.now()

    def told(at):
        return at if isinstance(at, str | float) else iso(sent + at * 1000)

    bot.clock.advance(120)
    await step.started(started_at=told(began))
    bot.clock.advance(60)
    await step.ended(completed_at=told(ended))
    found = await job(bot)
    assert (found["started_at"], found["completed_at"]) == (iso(sent + 120_000), iso(sent + 180_000))
    assert found["flags"] == {"odd_times": True}


async def test_clocks_a_minute_apart_are_believed(bot, step):
    sent = bot.clock.now()
    await step.started(started_at=iso(sent - 60_000))
    await step.ended(completed_at=iso(sent + 60_000))
    found = await job(bot)
    assert (found["started_at"], found["flags"]) == (iso(sent - 60_000), {})


async def test_an_end_alone_is_its_own_beginning(bot, step):
    sent = bot.clock.now()
    bot.clock.advance(50)
    await step.ended(completed_at=iso(sent + 40_000))
    found = await job(bot)
    assert (found["started_at"], found["completed_at"]) == (iso(sent + 40_000),) * 2


async def test_a_repetition_that_knows_more_fills_what_was_unknown(bot, step):
    await step.started()
    await step.ended("failure", url=None)
    again = await step.ended("failure", test_results={"passed": 3, "failed": 1}, url=None)
    assert "duplicate" not in again
    assert (await step.ended("failure", test_results={"passed": 9, "failed": 9}, url=None))["duplicate"]
    found = await job(bot)
    assert (found["passed_tests"], found["failed_tests"], found["conclusion"]) == (3, 1, "failure")


async def test_failed_tests_go_by_two_names(bot, step):
    await step.ended("failure", failed_tests_detail=[{"name": "test_add", "duration": 3}])
    assert (await job(bot))["failed_tests_json"] == [{"name": "test_add"}]


async def test_a_triage_verdict_is_stored_and_shown(bot, step):
    await step.ended("failure", triage_verdict=TRIAGE | {"more": True})
    stored = {name: value for name, value in TRIAGE.items() if name != "schema_version"}
    assert (await job(bot))["triage_verdict"] == stored
    _, page = await bot.get(f"/{UPSTREAM}/pull/1")
    assert "its backend says: upstream #12 (high confidence): aten::foo lost an overload" in page


SPOILT = {
    "of another version": {"schema_version": 2},
    "of an unknown kind": {"category": "gremlins"},
    "that suspects without reason": {"category": "backend"},
    "that suspects nobody": {"suspected_upstream": {"reason": "a feeling"}},
    "with a link that is none": {"evidence": [{"log_url": "javascript:alert(1)"}]},
    "that is too long": {"evidence": [{"excerpt": "x" * 17_000}]},
    "that is empty": {"summary": ""},
}


@pytest.mark.parametrize("case", each(3, [*SPOILT, "that is no object"]))
async def test_a_triage_verdict_is_dropped_as_a_whole(bot, step, case):
    await step.ended("failure", triage_verdict=TRIAGE | SPOILT[case] if case in SPOILT else "upstream did it")
    found = await job(bot)
    assert found["triage_verdict"] is None
    assert found["flags"]["triage_verdict_dropped"]
