"""Do all processes judge by the same allowlist? A version one of them has read is in force in the others at once."""

from __future__ import annotations

import asyncio
from pathlib import Path

from bot.app import make_context
from bot.oot.allowlist import versions
from tests.harness import ALLOWLIST, L2, L4, UPSTREAM
from tests.serving import POSTGRES

pytestmark = POSTGRES


async def test_who_is_taken_off_the_list_is_refused_by_every_process_at_once(bot, settings, clock, github):
    await github.open_pull(UPSTREAM)
    await bot.settle()
    dispatch = bot.dispatch(L4)
    assert (await bot.report(dispatch, status="in_progress"))[0] == 200
    before = len(bot.github.dispatches)
    async with make_context(settings, clock=clock) as worker:
        Path(settings.allowlist).write_text(f"L2: [{L2}]\n")
        await versions.refresh(worker)
        status, answer = await bot.report(dispatch)
        assert (status, answer["error"]) == (403, "not_listed")
        _, listed = await bot.get("/api/oot/allowlist")
        assert [entry["repo"] for entry in listed["entries"]] == [L2]
        await github.open_pull(UPSTREAM)
        await bot.settle()
        assert [one.repo.full_name for one in bot.github.dispatches[before:]] == [L2]

        Path(settings.allowlist).write_text(ALLOWLIST)
        await versions.refresh(worker)
        assert (await bot.report(dispatch))[0] == 200


async def test_a_list_two_processes_read_at_once_is_kept_once(bot, settings, clock):
    async with make_context(settings, clock=clock) as one, make_context(settings, clock=clock) as other:
        Path(settings.allowlist).write_text(f"L2: [{L2}]\n")
        before = len(await bot.rows("allowlist_version"))
        await asyncio.gather(versions.refresh(one), versions.refresh(other))
        assert len(await bot.rows("allowlist_version")) == before + 1
