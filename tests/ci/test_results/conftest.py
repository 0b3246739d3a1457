"""A bot that collects reports of tests, and runs that leave some."""

from __future__ import annotations

import pytest

from bot.ci.collect.settings import CollectSettings
from tests import harness
from tests.harness import UPSTREAM


@pytest.fixture
def options():
    """Options of features, by their class."""
    return {CollectSettings: CollectSettings()}


@pytest.fixture
async def bot(settings, options, github, issuer, clock):
    from dataclasses import replace

    chosen = replace(settings, of_features={**settings.of_features, **options})
    async with harness.running(
        chosen, github=github, issuer=issuer, app=github.app, clock=clock, begun=True
    ) as made:
        # a call with a fresh token that is refused is repeated, as not all of GitHub's servers may know it
        await made.context.github.tokens.get(UPSTREAM, {"actions": "read"})
        clock.advance(10)
        yield made
