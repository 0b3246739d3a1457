"""Does a bot whose clock is wrong still work? GitHub refuses what is signed for another time."""

from __future__ import annotations

import pytest

from tests.harness import L4, UPSTREAM, ManualClock, running
from tests.serving import SQLITE

HOUR = 3_600_000  # milliseconds


class Wrong(ManualClock):
    """A clock that goes as another does, some seconds off."""

    def __init__(self, right, off):
        self.right, self.off = right, round(off * 1000)

    @property
    def at(self):
        return self.right.at + self.off

    @at.setter
    def at(self, value):
        self.right.at = value - self.off


@pytest.mark.logic
@pytest.mark.parametrize("minutes", [-10, -2, 2, 10])
async def test_a_clock_that_is_minutes_off_costs_nothing_on_githubs_side(
    settings, github, issuer, clock, minutes, capsys
):
    wrong = Wrong(clock, minutes * 60)
    async with running(settings, github=github, issuer=issuer, app=github.app, clock=wrong) as bot:
        pull = await github.open_pull(UPSTREAM)
        await bot.settle(horizon=30)
        assert {row["state"] for row in await bot.rows("oot_dispatch")} == {"sent"}
        assert bot.dispatch(L4).client_payload["event_type"] == "pull_request"
        assert bot.checks(UPSTREAM, pull.head_sha)["oot / gate"][0] == "in_progress"
    told = [line for line in capsys.readouterr().out.splitlines() if "clock is wrong" in line]
    assert (len(told), minutes in {-10, 10, 2}) in {(1, True), (0, False), (0, True)}
    refused = [call for call in github.calls if call.status == 401]
    assert len(refused) <= 3


@pytest.mark.logic
async def test_a_key_that_github_does_not_accept_is_no_missing_installation(bot, github):
    github.faults.add(path="/installation$", status=401, body={"message": "Bad credentials"}, times=8)
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    assert {row["state"] for row in await bot.rows("oot_dispatch")} == {"pending"}
    await bot.settle(horizon=600)
    assert {row["state"] for row in await bot.rows("oot_dispatch")} == {"sent"}
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / gate"][0] == "in_progress"


@pytest.mark.logic
async def test_a_clock_that_was_hours_ahead_and_is_put_right_keeps_nothing_waiting(
    settings, github, issuer, clock
):
    wrong = Wrong(clock, 0)
    async with running(settings, github=github, issuer=issuer, app=github.app, clock=wrong) as bot:
        wrong.off = 6 * HOUR
        await github.open_pull(UPSTREAM)
        await bot.settle(horizon=30)
        wrong.off = 0
        pull = await github.open_pull(UPSTREAM)
        await bot.settle(horizon=120)
        assert "oot / gate" in bot.checks(UPSTREAM, pull.head_sha)
        waiting = [row for row in await bot.rows("task") if row["state"] == "waiting"]
        assert max(row["due_at"] for row in waiting) <= bot.clock.now() + HOUR


@SQLITE  # PostgreSQL's own clock is the one that counts there
async def test_a_clock_put_right_heeds_what_github_asks_for(settings, github, issuer, clock):
    wrong = Wrong(clock, 0)
    busy = {"method": "POST", "path": f"{L4}/dispatches$", "status": 429, "times": 1}
    async with running(settings, github=github, issuer=issuer, app=github.app, clock=wrong) as bot:
        for ahead in (6 * HOUR, 0):
            wrong.off = ahead
            github.faults.add(**busy, headers={"Retry-After": "600"})
            before = len(github.calls)
            await github.open_pull(UPSTREAM)
            await bot.settle(horizon=90)
            org = L4.partition("/")[0]
            tried = [call for call in github.calls[before:] if call.path.startswith(f"/repos/{org}/")]
            refused = next(call for call in tried if call.path == f"/repos/{L4}/dispatches")
            # what was on its way already when GitHub refused is sent within the pauses between writes
            assert not [call for call in tried if call.method == "POST" and call.at > refused.at + 1000]
            await bot.settle(horizon=660)
