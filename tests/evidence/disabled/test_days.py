"""What was disabled, day by day: the last list of each day is kept, as long as records are."""

from __future__ import annotations

import pytest

from bot.evidence.disabled.exports import prune_disabled
from tests.evidence.disabled.issues import deliver, issue, may_write

DAY = 86_400  # seconds
FIRST, SECOND = "test_a (__main__.A)", "test_b (__main__.B)"


@pytest.mark.logic
async def test_each_day_has_its_last_list(bot_with):
    async with bot_with() as bot:
        may_write(bot, "erin")
        await deliver(bot, issue(bot, 7, f"DISABLED {FIRST}", "platforms: linux"))
        await deliver(bot, issue(bot, 8, f"DISABLED {SECOND}"))
        (today,) = await bot.rows("ci_disabled_day")
        assert today["tests"] == [[FIRST, 7, ["linux"]], [SECOND, 8, []]]
        made_at = today["made_at"]
        await deliver(bot, issue(bot, 8, f"DISABLED {SECOND}", "the same, in other words", at=1))
        assert (await bot.rows("ci_disabled_day"))[0]["made_at"] == made_at, "the list is the same"
        await bot.wait(DAY)
        await deliver(bot, issue(bot, 8, f"DISABLED {SECOND}", state="closed", at=DAY))
        days = sorted(await bot.rows("ci_disabled_day"), key=lambda row: row["day"])
        assert [row["tests"] for row in days][-1] == [[FIRST, 7, ["linux"]]]
        assert days[0]["tests"] == today["tests"]
        bot.clock.advance(bot.context.settings.record_retention_days * DAY)
        assert (await prune_disabled(bot.context))["days of disabled tests"] == 1
        assert {row["day"] for row in await bot.rows("ci_disabled_day")} == {row["day"] for row in days[1:]}
