from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from bot.evidence.disabled.feature import DisabledSettings
from tests import harness


@pytest.fixture
def bot_with(settings, github, issuer, clock):
    """Run a bot with options about disabling."""

    @asynccontextmanager
    async def run(**options):
        of = {**settings.of_features, DisabledSettings: DisabledSettings(**options)}
        chosen = replace(settings, of_features=of)
        begun = clock.now() == harness.START
        async with harness.running(
            chosen, github=github, issuer=issuer, app=github.app, clock=clock, begun=begun
        ) as bot:
            yield bot

    return run
