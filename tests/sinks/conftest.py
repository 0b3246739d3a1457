"""A bot with sinks: directories, unless a test chooses others."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bot.sinks.settings import SinksSettings, parse_sinks
from tests import harness
from tests.sinks.dynamo_tables import aws, dynamo, dynamo_sink, prefix  # noqa: F401 - fixtures
from tests.sinks.stored import archive_of, copies_of


@pytest.fixture
def folder(tmp_path) -> Path:
    return tmp_path / "sinks"


@pytest.fixture
def tables(request, folder):
    """The settings' tables of sinks; a test may choose others by its marker's parameters."""
    chosen = getattr(request, "param", None) or {"archive": archive_of(folder), "copies": copies_of(folder)}
    return {
        name: {
            key: value.replace("FOLDER", f"file://{folder}") if key == "url" else value
            for key, value in table.items()
        }
        for name, table in chosen.items()
    }


@pytest.fixture
def with_sinks(settings, tables):
    found = SinksSettings(sinks=parse_sinks(json.dumps(tables)))
    return replace(settings, of_features={**settings.of_features, SinksSettings: found})


@pytest.fixture
async def bot(with_sinks, github, issuer, clock):
    async with harness.running(
        with_sinks, github=github, issuer=issuer, app=github.app, clock=clock, begun=True
    ) as made:
        yield made
