"""A bot that collects what CI leaves behind."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests import harness


@pytest.fixture
async def collecting_bot(settings, github, issuer, clock):
    """The bot, with every option at its default."""
    chosen = replace(settings, of_features={})
    begun = clock.now() == harness.START
    async with harness.running(
        chosen, github=github, issuer=issuer, app=github.app, clock=clock, begun=begun
    ) as made:
        yield made
