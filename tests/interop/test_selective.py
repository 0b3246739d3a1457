"""Backends of today that answer only some dispatches, from an allowlist as it is today."""

from __future__ import annotations

import pytest

from tests.harness import L1, L2, L3, L4, UPSTREAM, running
from tests.interop import client
from tests.serving import SQLITE

pytestmark = [pytest.mark.logic, SQLITE]

TODAY = f"""
L1:
  - {L1}
L2:
  - {L2}
L3:
  npu:
    {L3}: [carol]
L4:
  - {L4}: dave, erin
"""
DAY = 24 * 3600


async def test_one_green_run_beside_six_silent_dispatches_is_green(settings, github, issuer, clock, tmp_path):
    (tmp_path / "allowlist.yml").write_text(TODAY)
    async with running(settings, github=github, issuer=issuer, app=github.app, clock=clock) as bot:
        for _ in range(7):
            await github.open_pull(UPSTREAM)
            await bot.settle()
        for backend in (L2, L3):
            step = client.of(bot, bot.dispatch(backend))
            await step.started()
            await step.ended("success")
        await bot.wait(DAY + 120)
        _, summary = await bot.get("/api/oot/summary")
        found = {one["repo"]: one for one in summary["backends"]}
        for backend in (L2, L3):
            numbers = found[backend]
            assert (numbers["pass_rate"], numbers["runs"], numbers["not_run"]) == (1.0, 1, 6)
            assert (numbers["grade"], numbers["never_started"]) == ("green", 0)
        assert (found[L4]["never_started"], found[L4]["grade"]) == (7, "red")  # a gate waited for it
        assert found[L1]["not_run"] == found[L1]["never_started"] == 0  # nobody expects anything


@pytest.mark.parametrize(
    ("events", "ended"), [("", "not_run"), ("{events: [pull_request, push]}", "never_started")]
)
async def test_who_lists_no_pushes_need_not_answer_them_even_at_l4(bot, github, events, ended):
    """Its workflow may be for pull requests only: today the relay sends it pushes all the same."""
    await bot.list_backends(f"L4: [{{{L4}: {events}}}]")
    await github.push(UPSTREAM, "main", message="a change")
    await bot.wait(DAY + 120)
    (dispatch,) = await bot.rows("oot_dispatch")
    assert (dispatch["event_type"], dispatch["state"]) == ("push", ended)
    _, summary = await bot.get("/api/oot/summary")
    (numbers,) = [one for one in summary["backends"] if one["repo"] == L4]
    assert numbers["never_started"] == (ended == "never_started")
