"""A bot that CircleCI and Buildkite deliver to."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bot.jobs.settings import TrunkSettings
from bot.providers.feature import ProviderSettings, read_providers
from tests import harness
from tests.providers.sending import PIPELINE, SECRET, SLUG, TOKEN

ENVIRON = {"CIRCLECI_SECRET": SECRET, "BUILDKITE_TOKEN": TOKEN}
PROVIDERS = (
    f'[{{"kind": "circleci", "projects": {{"{SLUG}": "{harness.UPSTREAM}"}}}},'
    f' {{"kind": "buildkite", "pipelines": {{"{PIPELINE}": "{harness.UPSTREAM}"}}}}]'
)


COMMANDS = {**ENVIRON, "OOTBOT_PROVIDERS": PROVIDERS}  # what a command needs in its environment


@pytest.fixture
def environ():
    """The environment with the secrets."""
    return ENVIRON


@pytest.fixture
def trunk_settings():
    """What the grid shows."""
    return TrunkSettings()


@pytest.fixture
def settings(settings, environ, trunk_settings):
    """Those of the bot, with both."""
    of_features = {
        **settings.of_features,
        ProviderSettings: ProviderSettings(providers=read_providers(PROVIDERS, environ)),
        TrunkSettings: trunk_settings,
    }
    return replace(settings, of_features=of_features)


@pytest.fixture
async def closed(settings, github, issuer, clock):
    """A bot without other CIs in its settings."""
    chosen = replace(settings, of_features={**settings.of_features, ProviderSettings: ProviderSettings()})
    async with harness.running(
        chosen, github=github, issuer=issuer, app=github.app, clock=clock, begun=True
    ) as made:
        yield made
