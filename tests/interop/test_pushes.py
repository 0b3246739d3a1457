"""Pushes, tags and deletions: to everybody who names no events, as from today's relay."""

from __future__ import annotations

import pytest

from tests.harness import L1, L2, L3, L4, UPSTREAM
from tests.samples import nightly
from tests.serving import SQLITE

pytestmark = [pytest.mark.logic, SQLITE]

WITH_AND_WITHOUT = pytest.mark.parametrize("preset", ["crcr", nightly(None)])  # see test_differences


@WITH_AND_WITHOUT
async def test_tags_and_deletions_go_to_everybody_under_the_preset(bot, github, preset):
    everybody = [L2, L3, L4, L1] if preset else []
    await github.push(UPSTREAM, "refs/tags/v1")
    await bot.settle()
    assert sorted(one.repo.full_name for one in github.dispatches) == sorted(everybody)
    (pushed,) = [one for one in github.deliveries if one.event == "push"]
    gone = pushed.payload | {"deleted": True, "before": pushed.payload["after"], "after": "0" * 40}
    await github.deliver("push", gone | {"commits": [], "head_commit": None})
    await bot.settle()
    assert len(github.dispatches) == 2 * len(everybody)
    sent = [one.client_payload["payload"]["ref"] for one in github.dispatches]
    assert set(sent) == ({"refs/tags/v1"} if preset else set())


async def test_a_nightly_report_is_taken_from_whoever_is_at_l2(bot, github):
    commit = github.state.repo(UPSTREAM).branches["main"]
    body = {
        "event_type": "nightly",
        "delivery_id": commit,
        "workflow": {
            "schema_version": "1.0", "status": "completed", "conclusion": "success", "name": "Nightly",
            "url": "https://ci.example/1", "run_id": "7", "run_attempt": 1, "job_name": "all",
        },
    }  # fmt: skip
    for backend in (L2, L3, L4):
        token = bot.issuer.mint(repository=backend, run_id="7", run_attempt=1)
        headers = {"Authorization": f"Bearer {token}"}
        answer = await bot.request("POST", "/api/oot/callback", json=body, headers=headers)
        assert answer == (200, {"ok": True, "status": "completed"})
    await bot.settle()
    assert (await bot.get(f"/api/oot/backends/{L2}"))[1]["backend"]["pass_rate"] == 1.0
