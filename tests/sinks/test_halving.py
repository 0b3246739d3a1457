"""A driver that does not say which row it refuses: the batch is halved until the row stands alone."""

from __future__ import annotations

import pytest

from bot.features import FEATURES
from bot.sinks.driver import BatchRefused, Outgoing, SinkAway
from bot.sinks.queues import export_queues
from bot.sinks.sending import send_all


class Strict:
    """A driver as one of a database may be: one bad row, and none of the batch is taken."""

    def __init__(self, *bad, away_after=None):
        self.bad, self.taken, self.calls, self.away_after = set(bad), [], 0, away_after

    async def send(self, batch):
        self.calls += 1
        if self.calls == self.away_after:
            raise SinkAway("it is away")
        keys = [item.key for item in batch.items]
        if self.bad & set(keys):
            raise BatchRefused("some value is too large")
        self.taken += keys
        return []


@pytest.fixture
def queue(with_sinks):
    return next(one for one in export_queues(with_sinks, FEATURES) if one.what == "workflow_job")


def items(count):
    return [Outgoing(key=(1, number), row={}) for number in range(count)]


@pytest.mark.parametrize("bad", [(), (0,), (999,), (3, 4), (0, 500, 999)])
async def test_all_others_are_taken_once(queue, bad):
    driver = Strict(*((1, number) for number in bad))
    refused = await send_all(driver, queue, items(1000))
    assert sorted(one.key for one in refused) == [(1, number) for number in bad]
    assert sorted(driver.taken) == [(1, number) for number in range(1000) if number not in bad]
    assert driver.calls <= 1 + 2 * 10 * len(bad)
    assert {one.reason for one in refused} <= {"some value is too large"}


async def test_a_sink_that_goes_away_meanwhile_ends_it(queue):
    with pytest.raises(SinkAway):
        await send_all(Strict((1, 3), away_after=4), queue, items(100))
