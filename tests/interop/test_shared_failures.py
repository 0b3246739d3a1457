"""A failure that upstream's own jobs share on the same commit costs no backend its level."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bot.jobs.settings import CollectSettings
from tests import harness
from tests.evidence.tests.reported import case
from tests.evidence.tests.test_on_pulls import own_ci
from tests.harness import L3, UPSTREAM
from tests.interop.client import Client
from tests.samples import nightly

pytestmark = pytest.mark.logic
HORIZON = 200


@pytest.fixture
async def bot(settings, github, issuer, clock):
    """A bot that collects upstream's own reports."""
    chosen = replace(settings, of_features={**settings.of_features, CollectSettings: CollectSettings()})
    async with harness.running(
        chosen, github=github, issuer=issuer, app=github.app, clock=clock, begun=True
    ) as made:
        await made.context.github.tokens.get(UPSTREAM, {"actions": "read"})
        clock.advance(10)
        yield made


async def fail(bot, github, names, *, failed=None, upstream=()):
    """Fail these tests on the L3 backend, and others in upstream's own jobs on the same commit."""
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    if upstream:
        await own_ci(github, pull, *(case(name, "failed", suite="TestOpsCUDA") for name in upstream))
    await bot.settle(horizon=HORIZON)
    tests = [{"name": name, "classname": "test_ops.TestOpsNPU", "file": "test/test_ops.py"} for name in names]
    step = Client(bot, L3, bot.dispatch(L3).client_payload)
    await step.started()
    await step.ended("failure", failed_tests=tests, test_results={"failed": failed or len(names)})
    await bot.settle(horizon=HORIZON)


@pytest.mark.parametrize(
    ("mine", "failed", "upstream", "shared"),
    [
        (["test_add_npu"], None, ["test_add_cuda", "test_mul_cuda"], True),
        (["test_add_npu", "test_own_npu"], None, ["test_add_cuda"], False),  # one is its own
        nightly(["test_add_npu"], 2, ["test_add_cuda"], False),  # it named one of two
        nightly([], 3, ["test_add_cuda"], False),
        nightly(["test_add_npu"], None, [], False),  # nothing is known of upstream
    ],
    ids=["all of them", "one of its own", "not all named", "none named", "upstream unknown"],
)
async def test_what_upstream_shares_is_not_counted(bot, github, mine, failed, upstream, shared):
    await fail(bot, github, mine, failed=failed, upstream=upstream)
    status, answer = await bot.get("/api/crcr/level-status")
    (found,) = answer["repos"]
    assert status == 200
    assert found["change"] == (None if shared else "demote")
    assert found["sharedFailures"] == shared
    _, page = await bot.get(f"/oot/{L3}")
    assert ("it does not count against its level" in page) is shared
