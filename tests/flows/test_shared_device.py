"""Two L3 repositories share a device: one label asks for both, and each goes by its own name."""

from __future__ import annotations

import pytest

from tests.harness import L2, L3, UPSTREAM
from tests.serving import SQLITE

pytestmark = [pytest.mark.logic, SQLITE]

LABEL = "ciflow/oot/npu"
SHARED = f"L3: [{{npu: {L3}}}, {{NPU: {L2}}}]"


async def test_one_label_asks_for_both_and_each_has_its_own_check_run(bot, github):
    await bot.list_backends(SHARED)
    pull = await github.open_pull(UPSTREAM, labels=[LABEL])
    await bot.settle()
    assert (await bot.report(bot.dispatch(L2), conclusion="failure"))[0] == 200
    assert (await bot.report(bot.dispatch(L3)))[0] == 200
    await bot.settle()
    checks = bot.checks(UPSTREAM, pull.head_sha)
    assert {name: seen[1] for name, seen in checks.items()} == {
        f"oot / {L2}": "neutral",
        f"oot / {L3}": "success",
    }
    for path in ("/oot", "/oot/levels", f"/{UPSTREAM}/pull/{pull.number}"):
        _, page = await bot.get(path)
        assert f">{L2}<" in page
        assert f">{L3}<" in page
    _, summary = await bot.get("/api/oot/summary")
    assert {one["repo"]: one["device"] for one in summary["backends"]} == {L3: "npu", L2: "NPU"}


async def test_a_check_run_that_has_begun_is_renamed_when_another_backend_comes_to_share_its_device(
    bot, github
):
    await bot.list_backends(f"L3: {{npu: {L3}}}")
    pull = await github.open_pull(UPSTREAM, labels=[LABEL])
    await bot.settle()
    await bot.report(bot.dispatch(L3), status="in_progress")
    await bot.settle()
    assert list(bot.checks(UPSTREAM, pull.head_sha)) == ["oot / npu"]
    await bot.list_backends(SHARED)
    await bot.report(bot.dispatch(L3))
    await bot.settle(horizon=60)
    checks = bot.checks(UPSTREAM, pull.head_sha)
    assert {name: seen[:2] for name, seen in checks.items()} == {f"oot / {L3}": ("completed", "success")}


async def test_a_command_names_the_repository(bot, github):
    await bot.list_backends(SHARED)
    pull = await github.open_pull(UPSTREAM, labels=[LABEL])
    await bot.settle()
    for repo in (L2, L3):
        await bot.report(bot.dispatch(repo), conclusion="failure")
    await bot.settle()
    github.set_permission(UPSTREAM, "walter", "write")
    bot.clock.advance(5)
    await github.comment(pull, "/oot ignore npu the lab moves", "walter")
    await github.comment(pull, f"/oot ignore {L2} the lab moves", "walter")
    await bot.settle(horizon=60)
    _, answer = await bot.get(f"/api/oot/pulls/{UPSTREAM}/{pull.number}")
    ignored = {one["repo"] for one in answer["backends"] if one["ignored_by"]}
    assert ignored == {L2}
