"""Nightly runs of commits that nobody knows: what is kept of them, whom that asks, and how many there may be."""

from __future__ import annotations

import json

import pytest

from tests.harness import L2, UPSTREAM, replace
from tests.interop.client import AUDIENCE, Client

WITH_AND_WITHOUT = pytest.mark.parametrize("preset", ["crcr", None])


@pytest.fixture
def settings(settings):
    return replace(settings, oidc_audience=("ootbot", AUDIENCE))


@pytest.mark.logic
@WITH_AND_WITHOUT
async def test_a_nightly_of_another_repositorys_commit(bot, preset):
    elsewhere = "ab" * 20
    await Client(bot, L2).nightly(elsewhere)
    await bot.settle(300)  # a commit that is new may be unknown for two minutes
    (row,) = await bot.rows("oot_workflow_job")
    if preset:
        assert (row["head_sha"], set(row["flags"])) == (None, {"no_commit", "no_start"})
    else:
        assert (row["head_sha"], set(row["flags"])) == (elsewhere, {"refused", "no_start"})
    calls = len(bot.github.calls)
    await Client(bot, L2, job="test").nightly(elsewhere)
    await Client(bot, L2).nightly(elsewhere, environment={"driver": "24.1"})  # a repetition that knows more
    await bot.settle(60)
    assert len(bot.github.calls) == calls  # nobody is asked twice
    rows = await bot.rows("oot_workflow_job")
    assert {(row["head_sha"], "unverified" in row["flags"]) for row in rows} == {
        (None if preset else elsewhere, False)
    }
    assert {tuple(sorted(row["environment"] or {})) for row in rows} == {(), ("driver",)}
    status, _ = await bot.get(f"/api/oot/commits/{UPSTREAM}/{elsewhere}")
    assert (status == 404) == bool(preset)


async def test_ids_of_nightlies_are_limited_like_commits(bot):
    await bot.list_backends(f"L2: [{{repo: {L2}, events: [nightly], rate_limit: 5000}}]")
    step = Client(bot, L2)
    body = {
        "event_type": "nightly",
        "delivery_id": "one",
        "workflow": step.fields("completed", "success", {}),
    }
    token = bot.issuer.mint(repository=L2, run_id="900", audience=AUDIENCE)
    codes = []
    for first in (0, 500, 1000):
        many = [
            body | {"workflow": body["workflow"] | {"job_name": f"job {first + at}"}} for at in range(500)
        ]
        _, answer = await bot.request(
            "POST", "/api/oot/callback/batch", data=json.dumps({"reports": many[: 500 if first < 1000 else 1]}),
            headers={"Authorization": f"Bearer {token}"},
        )  # fmt: skip
        codes += [one["code"] for one in answer["reports"]]
    assert codes == [200] * 1000 + [413]
