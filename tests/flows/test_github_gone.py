"""What if GitHub is gone for hours? It is not asked too often meanwhile, and soon after its return all is written."""

from __future__ import annotations

from tests.harness import UPSTREAM
from tests.serving import SQLITE

pytestmark = SQLITE
HOUR = 3600


async def passing(bot, seconds, step=10):
    """Let time pass, the timetable's tasks running as it does."""
    for _ in range(round(seconds / step)):
        await bot.wait(step)


def made_check(call):
    return call.method == "POST" and call.path.endswith("/check-runs")


async def test_within_two_minutes_of_githubs_return_everything_is_written_gates_first(bot, github):
    fault = github.faults.add(method="GET|POST", status=502, times=10**9)
    pull = await github.open_pull(UPSTREAM)
    await bot.wait(6 * HOUR)
    in_vain = len(github.calls)
    assert in_vain < 6 * 60 * 3, "GitHub is asked more than thrice a minute"
    github.faults.waiting.remove(fault)
    await passing(bot, 70)
    written = [call.body["name"] for call in github.calls[in_vain:] if made_check(call)]
    assert written == ["oot / gate", "oot / tpu"]
    await passing(bot, 30)
    assert {row["state"] for row in await bot.rows("oot_dispatch")} == {"sent"}
    assert len(github.dispatches) == 4
    assert set(bot.checks(UPSTREAM, pull.head_sha)) == {"oot / gate", "oot / tpu"}


async def test_what_github_asked_us_to_wait_for_is_not_hastened(bot, github):
    github.faults.add(method="POST", path="/check-runs$", status=429, headers={"Retry-After": "600"})
    github.faults.add(method="POST", path="/dispatches$", status=502, times=1)
    await github.open_pull(UPSTREAM)
    await bot.settle()
    before = len(github.calls)
    await passing(bot, 500)
    assert not [call for call in github.calls[before:] if made_check(call)]
