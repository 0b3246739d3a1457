"""A receiver, and a bot that knows it."""

from __future__ import annotations

import pytest

from tests import harness
from tests.notify.receiving import receiving, telling


@pytest.fixture
async def inbox():
    async with receiving() as made:
        yield made


@pytest.fixture
def serve(settings, github, issuer, clock):
    """Run bots on this database, one after the other, with some receivers."""

    def run(*receivers, begun=False, **options):
        chosen = telling(settings, *receivers, **options)
        return harness.running(chosen, github=github, issuer=issuer, app=github.app, clock=clock, begun=begun)

    return run


BACKENDS = ("backend_red", "backend_recovered", "backend_silent", "backend_reporting")


@pytest.fixture
async def bot(inbox, serve):
    """A bot that tells of backends: not of gates, for which nobody reports here."""
    async with serve(inbox.receiver(events=BACKENDS), begun=True) as made:
        yield made
