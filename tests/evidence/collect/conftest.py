"""A bot that collects, with parsers of the tests' own beside it."""

from __future__ import annotations

import importlib
import sys
from dataclasses import replace

import pytest

from bot.core.feature import Feature
from bot.features import FEATURES
from bot.jobs.settings import CollectSettings
from tests import harness
from tests.evidence.collect import bucket

PARSERS = """
from bot.evidence.collect.parse import archives, contract


def log(given):
    text = given.path.read_bytes()
    given.blob.write_bytes(b"kept " + text)
    return {"lines": text.count(b"\\n"), "last": text.splitlines()[-1] if text else b""}


def junit(given):
    found = {}
    for member in archives.read_members(given.path, given.members):
        found[member.name] = len(member.content())
    return found
"""
RECEIVERS = """
from bot.evidence.collect.receivers import Receiver

received = []


async def store(tx, context, fetched, answer, blob):
    received.append((fetched, answer, blob))


LOG = Receiver(store=store)
JUNIT = Receiver(store=store)
USAGE = Receiver(store=store, members=("*usage_log.txt",))
"""


@pytest.fixture
def readers(tmp_path, monkeypatch):
    """A feature that reads logs, test reports and usage logs, and what its receivers got."""
    folder = tmp_path / "packages"
    folder.mkdir()
    (folder / "collect_parsers.py").write_text(PARSERS)
    (folder / "collect_receivers.py").write_text(RECEIVERS)
    monkeypatch.syspath_prepend(folder)
    yield Feature(
        name="readers",
        parsers={
            "log": "collect_parsers:log",
            "junit": "collect_parsers:junit",
            "usage": "collect_parsers:junit",
        },
        receivers={
            "log": "collect_receivers:LOG",
            "junit": "collect_receivers:JUNIT",
            "usage": "collect_receivers:USAGE",
        },
    )
    for name in ("collect_parsers", "collect_receivers"):
        sys.modules.pop(name, None)


@pytest.fixture
def received(readers):
    return importlib.import_module("collect_receivers").received


@pytest.fixture
def features(readers):
    return (*(feature for feature in FEATURES if not feature.parsers), readers)


@pytest.fixture(scope="session")
def server():
    """The variables under which a bucket of S3 is found."""
    with bucket.serving() as variables:
        yield variables


@pytest.fixture
def collecting(request):
    """The options of collecting; a test may choose others by its marker's parameters."""
    return CollectSettings(**getattr(request, "param", {}))


@pytest.fixture
async def bot(settings, collecting, github, issuer, clock, features):
    chosen = replace(settings, of_features={CollectSettings: collecting})
    async with harness.running(
        chosen, github=github, issuer=issuer, app=github.app, clock=clock, features=features, begun=True
    ) as made:
        # a call with a fresh token that is refused is repeated, as not all of GitHub's servers may know it
        await made.context.github.tokens.get(harness.UPSTREAM, {"actions": "read"})
        clock.advance(10)
        yield made
