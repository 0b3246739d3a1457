"""Is a test flaky or broken?"""

from __future__ import annotations

import json
import random
import time

import pytest

from bot.evidence.tests import states
from bot.evidence.tests.states import DAY, JudgedState, Observation, State
from tests.command import ootbot
from tests.evidence.tests.reported import case, known_tests, ran, xml
from tests.harness import UPSTREAM
from tests.serving import SQLITE

NOW = 100 * DAY


def runs(drawing, *, every=3_600_000, until=NOW):
    """Runs as drawn, the last one newest: . passed, F failed, ~ flaky; those in one [] are of one commit."""
    found, sha, inside = [], 0, False
    for sign in drawing:
        if sign in "[]":
            inside = sign == "["
            sha += 1
        else:
            sha += not inside
            found.append((sign, sha))
    return [
        Observation(
            at=until - (len(found) - 1 - index) * every,
            job_id=index,
            sha=str(sha),
            job_family="f",
            failed=sign == "F",
            flaky=sign == "~",
        )
        for index, (sign, sha) in enumerate(found)
    ]


@pytest.mark.parametrize(
    ("drawing", "state"),
    [
        ("", "healthy"),
        ("..........", "healthy"),
        ("...~......", "healthy"),  # once is not enough
        ("...~...~..", "flaky"),
        ("...[F.].[.F]..", "flaky"),  # failed and passed on one commit, twice
        ("...F...F..", "healthy"),  # too few runs for a rate
        (".....F.....F.....F....", "flaky"),  # 3 of 22
        (".....F.....FF.........", "healthy"),  # two in a row are one
        ("F.F.F.F.F.F.F.F.F.F.F.F.", "healthy"),  # a rate of one half: neither
        ("..........FF", "healthy"),
        (".........FFF", "broken"),
        ("...~...~FFF", "broken"),
    ],
)
def test_a_state_by_what_runs_said(drawing, state):
    seen = runs(drawing)
    judged = states.evaluate(seen, None, now=NOW)
    assert judged.state == state
    shuffled = random.Random(1).sample(seen, len(seen))
    assert states.evaluate(shuffled, None, now=NOW) == judged


FLAKY = JudgedState(State.FLAKY, 5, {"flaky": 2})


@pytest.mark.parametrize(
    ("drawing", "every", "state"),
    [
        ("~" + "." * 30, 3_600_000, "flaky"),
        ("~" + "." * 100, 3_600_000, "healthy"),  # a hundred runs without an event
        ("~" + "." * 13, DAY, "flaky"),
        ("~" + "." * 14, DAY, "healthy"),  # fourteen days
        ("", DAY, "healthy"),
    ],
)
def test_a_flaky_test_is_healthy_after_a_quiet_time_only(drawing, every, state):
    assert states.evaluate(runs(drawing, every=every), FLAKY, now=NOW).state == state


def test_a_broken_test_is_healthy_once_it_passes_for_good():
    broken = states.evaluate(runs(".FFF"), None, now=NOW)
    assert (broken.state, broken.since, broken.evidence["jobs"]) == (
        State.BROKEN,
        NOW - 2 * 3_600_000,
        [1, 2, 3],
    )
    for drawing, state in (("FFF.", "broken"), ("FFF..", "broken"), ("FFF...", "healthy")):
        assert states.evaluate(runs(drawing), broken, now=NOW).state == state


def test_after_a_reset_nothing_before_counts():
    seen = runs("...~...~..")
    healthy = states.reset_state(NOW - 1)
    again = states.evaluate(seen, healthy, now=NOW)
    assert (again.state, again.evidence) == (State.HEALTHY, {"reset": NOW - 1})
    later = [*seen, *runs("~.~", until=NOW + DAY)]
    assert states.evaluate(later, again, now=NOW + DAY).state is State.FLAKY


def test_what_people_quarantined_stays_so():
    quarantined = JudgedState(State.QUARANTINED, 1, {})
    assert states.evaluate(runs("....."), quarantined, now=NOW) == quarantined


async def shown(bot):
    names = await known_tests(bot)
    return {names[row["test_id"]][2]: row["state"] for row in await bot.rows("test_state")}


@pytest.mark.logic
async def test_trusted_runs_make_a_test_flaky_and_a_fork_called_main_does_not(bot, github):
    fork = github.add_repo("someone/pytorch", install=[])
    for _ in range(2):
        bot.clock.advance(3600)
        await ran(github, {"a.xml": xml(case("test_a", "flaky"), case("test_b"))})
        await ran(
            github, {"a.xml": xml(case("test_b", "flaky"))}, event="pull_request", head_branch="main", head_repo=fork
        )  # fmt: skip
        await bot.settle(horizon=900)
    assert await shown(bot) == {"test_a": "flaky"}
    (row,) = await bot.rows("test_state")
    assert (row["env_group"], row["by"], row["evidence"]["flaky"]) == ("linux cuda default", "bot", 2)
    before = row
    await bot.settle(horizon=3 * 3600)  # looked at again, nothing new
    (row,) = await bot.rows("test_state")
    assert (row["state"], row["since"]) == (before["state"], before["since"])
    async with bot.store.transaction() as tx:
        assert await states.reset_test(tx, row["repository_id"], row["test_id"], by="octocat") == 1
    await bot.settle(horizon=7 * 3600)
    assert await shown(bot) == {"test_a": "healthy"}
    (row,) = await bot.rows("test_state")
    assert row["by"] == "octocat"


@SQLITE
async def test_three_failures_in_a_row_are_broken(bot, github):
    for _ in range(3):
        bot.clock.advance(3600)
        await github.push(UPSTREAM)
        await ran(github, {"a.xml": xml(case("test_a", "failed"))}, conclusion="failure")
    await bot.settle(horizon=900)
    assert await shown(bot) == {"test_a": "broken"}


@SQLITE
async def test_the_console_shows_a_tests_history_and_resets_it(bot, github):
    for outcome in ("flaky", "flaky", "passed"):
        bot.clock.advance(3600)
        await ran(github, {"a.xml": xml(case("test_a", outcome), case("test_a", suite="Other"))})
    await bot.settle(horizon=900)
    name = "test_ops.py::TestOps::test_a"
    days = str(
        int(time.time() - bot.clock.now() / 1000) // 86_400 + 3
    )  # the command knows the real time only
    code, out, _ = await ootbot(bot, "tests", "history", UPSTREAM, name, "--days", days)
    assert code == 0
    assert "flaky since" in out
    assert "3 runs, 3 passed, 2 flaky, 0.25 s" in out
    _, out, _ = await ootbot(bot, "tests", "history", UPSTREAM, "test_a", "--json", "--days", days)
    found = {one["suite"]: one for one in json.loads(out)["tests"]}
    assert [(day["runs"], day["flaky"], day["env_group"]) for day in found["TestOps"]["days"]] == [
        (3, 2, "linux cuda default")
    ]
    assert found["Other"]["states"] == []
    code, _, err = await ootbot(bot, "tests", "reset", UPSTREAM, "test_a", "--by", "octocat")
    assert (code, "2 tests have that name" in err) == (1, True)
    code, out, _ = await ootbot(bot, "tests", "reset", UPSTREAM, name, "--by", "octocat")
    assert (code, out) == (0, f"{name} was flaky or broken in 1 environment, and is healthy now\n")
    assert (await shown(bot))["test_a"] == "healthy"
    code, _, err = await ootbot(bot, "tests", "history", UPSTREAM, "none")
    assert (code, "no test of that name" in err) == (1, True)
