"""Does a worker take at once what another process stored? Rung through PostgreSQL; its own looks are an hour apart."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
import sqlalchemy as sa

from bot.app import make_worker
from bot.ingest import inbox
from bot.ingest.inbox import Incoming
from tests.harness import UPSTREAM, UPSTREAM_ID
from tests.serving import POSTGRES
from tests.workers import NEVER, at_work, eventually

LARGE = 9 * 1024 * 1024  # bytes: of such bodies two are handled together


def issue(number, title="It is slow"):
    return {
        "action": "opened",
        "issue": {"id": number, "number": number, "title": title},
        "repository": {"id": UPSTREAM_ID, "full_name": UPSTREAM},
    }


async def deliver(bot, number):
    """Deliver an issue to a process that does no work; returns when its record is there."""
    assert (await bot.send("issues", issue(number)))[0] == 202
    await kept(bot, number)


async def kept(bot, number):
    """Return when the record of an issue is there."""

    async def found():
        return any(row["id"] == number for row in await bot.rows("issue"))

    await eventually(found, f"the record of issue {number}")


async def ask_for_a_task(bot, key):
    """Ask for a task in a process that does no work; returns when it is done."""
    async with bot.store.transaction() as tx:
        tx.enqueue("publish", key)

    async def done():
        return [row for row in await bot.rows("task") if row["key"] == key and row["state"] == "done"]

    await eventually(done, f"the end of {key}")


@POSTGRES
async def test_what_a_web_process_stores_a_worker_takes_at_once(bot, settings, clock):
    async with at_work(settings, clock):
        for number in range(1, 6):
            await deliver(bot, number)
            await ask_for_a_task(bot, f"{UPSTREAM}#{number}")


@pytest.mark.nightly
@POSTGRES
async def test_a_worker_whose_line_was_cut_listens_again(bot, settings, clock):
    cut = sa.text(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = current_database() AND query LIKE 'LISTEN %'"
    )
    async with at_work(settings, clock):
        await deliver(bot, 1)
        for number in (2, 3):

            async def cut_it():
                async with bot.store.transaction() as tx:
                    return await tx.rows(cut)

            await eventually(cut_it, "a line to cut")
            await deliver(bot, number)


@pytest.mark.logic
async def test_large_deliveries_left_to_the_next_look_do_not_wait_until_somebody_rings(bot):
    worker = make_worker(bot.context, poll=NEVER)
    working = asyncio.create_task(worker.run())

    async def idle():
        return all(
            row["due_at"] > bot.clock.now() for row in await bot.rows("task") if row["state"] != "done"
        )

    await eventually(idle, "a worker that has nothing to do")
    async with bot.store.transaction() as tx:
        for number in range(1, 6):
            body = msgspec.json.encode(issue(number, "x" * LARGE))
            await inbox.store_delivery(tx, Incoming(guid=f"large-{number}", event="issues", body=body))
    await kept(bot, 5)
    worker.stop()
    await working
