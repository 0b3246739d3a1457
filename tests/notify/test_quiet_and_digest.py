"""Quiet hours hold notices back until they end; a digest comes once a day, at its hour."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tests.notify.conftest import BACKENDS
from tests.notify.receiving import check
from tests.notify.stories import turn_red

pytestmark = pytest.mark.logic


def clock_of(now, seconds):
    """The time of day in so many seconds, as settings have it."""
    return datetime.fromtimestamp(now / 1000 + seconds, UTC).strftime("%H:%M")


async def test_what_happens_in_quiet_hours_is_sent_at_their_end(inbox, serve, clock):
    later = clock.now() + 30 * 3_600_000
    quiet = f"{clock_of(later, -3_600)}-{clock_of(later, 7_200)}"
    async with serve(inbox.receiver(events=BACKENDS, quiet=quiet)) as bot:
        await turn_red(bot)
        await check(bot)
        await bot.wait(3_600)
        assert inbox.got == []
        await bot.wait(3_700)
        assert inbox.told == ["backend_red"]


async def test_a_digest_says_what_is_open_what_happened_and_how_backends_fare(inbox, serve, clock):
    later = clock.now() + 30 * 3_600_000
    receiver = inbox.receiver(events=BACKENDS, backends=("org/*",), digest=clock_of(later, 120))
    async with serve(receiver) as bot:
        await turn_red(bot)
        await bot.wait(300)
        await bot.wait(3_600)

        digests = [one for one in inbox.notices if one["type"] == "digest"]
        assert [one["data"]["heading"] for one in digests][-1] == "Daily digest: 1 open matter"
        lines = digests[-1]["data"]["lines"]
        assert lines[0] == "In the last 24 hours: 1 × backend turned red"
        assert lines[1].startswith("Open: npu (L3) turned red (for ")
        assert "npu (L3): 0 % of 1 passed" in lines
        assert "tpu (L4): no result that counts" in lines
        before = len(digests)
        await bot.wait(20 * 3_600)
        assert len([one for one in inbox.notices if one["type"] == "digest"]) == before
        await bot.wait(4 * 3_600)
        assert len([one for one in inbox.notices if one["type"] == "digest"]) == before + 1


@pytest.mark.nightly
async def test_a_digest_whose_time_is_long_past_is_left_out(inbox, serve, clock):
    receiver = inbox.receiver(events=BACKENDS, digest=clock_of(clock.now(), -4 * 3_600))
    async with serve(receiver) as bot:
        await check(bot)
        assert inbox.got == []
