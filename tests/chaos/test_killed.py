"""The short form of the fault suite: is anything lost, or done twice, when a busy bot is killed again and again?"""

from __future__ import annotations

import os

import pytest

from tests.chaos import killed
from tests.chaos.scenario import Trial
from tests.serving import POSTGRES, SQLITE

pytestmark = [  # by default tests/flows/test_kill.py kills a bot at chosen points
    pytest.mark.nightly,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
]


@SQLITE
@pytest.mark.parametrize("kills", [8, 60])
async def test_kills_lose_nothing_and_nothing_is_said_twice(tmp_path, database_url, kills):
    trial = Trial(n=kills, seed="sixty", folder=tmp_path, database_url=database_url, quiet=True)
    await killed.run(trial, authors=1, talkers=4, longest=0.25, deliveries=8 * kills, reports=kills // 3)
    assert trial.failures == []


@POSTGRES
async def test_kills_lose_no_acknowledged_delivery_of_postgresql(tmp_path, database_url):
    trial = Trial(n=4, seed="four", folder=tmp_path, database_url=database_url, quiet=True)
    # without authors: tasks would wait for the leases of the dead
    await killed.run(trial, authors=0, talkers=4, longest=0.25, deliveries=50)
    assert trial.failures == []
