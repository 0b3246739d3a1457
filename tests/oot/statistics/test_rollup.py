"""Stored days equal the sums of the rows, whatever happens to the rows and whenever days are written."""

import asyncio
import random
import tracemalloc

import pytest
import sqlalchemy as sa

from bot.features import FEATURES
from bot.oot.results import dispatches, jobs
from bot.oot.results.tables import oot_dispatch, oot_workflow_job
from bot.oot.statistics import daily_sums, stats
from bot.oot.statistics.stats import DAY, add_tallies, tally_rows
from bot.queue import sums, tasks
from tests import by_hand, samples
from tests.db.opened import opened
from tests.serving import POSTGRES
from tests.sums import count_changed

BACKENDS = ("org/npu", "Org/TPU")
CONCLUSIONS = ("success", "failure", "timed_out", "cancelled", "stale", "skipped")


@pytest.fixture
async def store(migrated_url, clock):
    async with opened(migrated_url, clock) as made:
        yield made


class Context:
    """As much of a context as the task needs."""

    features = FEATURES

    def __init__(self, store):
        self.store = store


def dispatch_row(identifier, backend, now, state="sent"):
    return {
        "id": identifier, "delivery_id": identifier, "source_guid": identifier, "upstream_repo": "org/up",
        "event_type": "pull_request", "action": "opened", "pr_number": 1, "head_sha": "a" * 40, "base_sha": None,
        "labels": [], "backend": backend, "backend_key": backend.casefold(), "level": 2, "device": None, "state": state,
        "attempts": 1, "created_at": now, "dispatched_at": now, "token_jti": "x", "run_id": None, "error": None,
    }  # fmt: skip


def reported(dispatch, now, *, job="build", attempt=1, conclusion="success", **fields):
    row = jobs.BLANK | {
        "dispatch_id": dispatch["id"], "status": "completed" if conclusion else "in_progress",
        "conclusion": conclusion, "downstream_repo": dispatch["backend"], "upstream_repo": "org/up", "pr_number": 1,
        "head_sha": "a" * 40, "delivery_id": dispatch["delivery_id"], "workflow_name": "CI", "job_name": job,
        "run_id": "9", "run_attempt": attempt, "queue_time": 20.0, "execution_time": 300.0 * attempt,
        "downstream_repo_level": 2, "event_type": "pull_request", "source": "callback", "flags": {},
        "received_at": now, "updated_at": now,
    } | fields  # fmt: skip
    return row | {"job_key": jobs.job_key(row)}


async def naive(store, first):
    """Every backend's numbers from a day on, from all rows there are."""
    async with store.read() as tx:
        rows = await tx.rows(sa.select(oot_workflow_job))
        asked = await tx.rows(sa.select(oot_dispatch))
    found = {}
    for backend in {row["downstream_repo"].casefold() for row in rows} | {
        row["backend_key"] for row in asked
    }:
        mine = [row for row in rows if row["downstream_repo"].casefold() == backend]
        sent = [row for row in asked if row["backend_key"] == backend]
        heard, ended = by_hand.counted(mine, sent)
        heard = [row for row in heard if row["received_at"] // DAY >= first]
        ended = [row for row in ended if row["created_at"] // DAY >= first]
        if heard or ended:
            found[backend] = stats.measure_backend(tally_rows(heard, ended))
    return found


async def kept(store, first):
    """The same, as pages read it."""
    async with store.read() as tx:
        found = await daily_sums.read_days(tx, first)
    keys = {one.backend_key for one in found}
    return {
        key: stats.measure_backend(add_tallies(one.tally for one in found if one.backend_key == key))
        for key in keys
    }


async def agree(store, clock):
    today = clock.now() // DAY
    for first in (today - 9, today - 2, today):
        assert await kept(store, first) == await naive(store, first)


@pytest.mark.logic
async def test_an_attempt_of_another_day_takes_the_earlier_one_out_of_its_day(store, clock):
    dispatch = dispatch_row("d", "org/npu", clock.now())
    async with store.transaction() as tx:
        await dispatches.add_dispatch(tx, dispatch)
        row = reported(dispatch, clock.now(), conclusion="failure")
        await jobs.add_jobs(tx, {row["job_key"]: row})
    await count_changed(Context(store))
    clock.advance(86_400)
    async with store.transaction() as tx:
        row = reported(dispatch, clock.now(), attempt=2)
        await jobs.add_jobs(tx, {row["job_key"]: row})
    found = (await kept(store, 0))["org/npu"]
    assert (found.runs, found.success, found.failure) == (1, 1, 0)
    await count_changed(Context(store))
    assert (await kept(store, 0))["org/npu"] == found
    await agree(store, clock)


async def test_a_late_report_takes_never_started_out_of_its_day(store, clock):
    dispatch = dispatch_row("d", "org/npu", clock.now())
    async with store.transaction() as tx:
        await dispatches.add_dispatch(tx, dispatch)
        await dispatches.change_dispatch(tx, "d", state="never_started", error="silent")
    await count_changed(Context(store))
    assert (await kept(store, 0))["org/npu"].never_started == 1
    clock.advance(86_400)
    async with store.transaction() as tx:
        row = reported(dispatch, clock.now())
        await jobs.add_jobs(tx, {row["job_key"]: row})
    await count_changed(Context(store))
    assert (await kept(store, 0))["org/npu"].never_started == 0
    await agree(store, clock)


@pytest.mark.logic
async def test_what_a_backend_tells_itself_takes_a_relays_word_out_of_its_day(store, clock):
    dispatch = dispatch_row("d", "org/npu", clock.now())
    async with store.transaction() as tx:
        await dispatches.add_dispatch(tx, dispatch)
        row = reported(dispatch, clock.now(), conclusion="failure", source="relay")
        await jobs.add_jobs(tx, {row["job_key"]: row})
    await count_changed(Context(store))
    clock.advance(86_400)
    async with store.transaction() as tx:
        row = reported(dispatch, clock.now())
        await jobs.add_jobs(tx, {row["job_key"]: row})
    await count_changed(Context(store))
    found = (await kept(store, 0))["org/npu"]
    assert (found.runs, found.success, found.failure) == (1, 1, 0)
    await agree(store, clock)


@POSTGRES
async def test_a_report_at_the_moment_its_dispatch_is_given_up_takes_never_started_out_of_its_day(
    store, clock
):
    dispatch = dispatch_row("d", "org/npu", clock.now())
    async with store.transaction() as tx:
        await dispatches.add_dispatch(tx, dispatch)
    clock.advance(86_400)
    row = reported(dispatch, clock.now())
    async with store.transaction() as reporting:
        async with store.transaction() as sweeping:
            assert await dispatches.end_unanswered(sweeping, "d", "silent")
            adding = asyncio.create_task(jobs.add_jobs(reporting, {row["job_key"]: row}))
            ended, _ = await asyncio.wait({adding}, timeout=1)
            assert not ended  # it waits for the other one
        await adding
        await count_changed(Context(store))
    await agree(store, clock)


async def test_what_changes_while_a_day_is_counted_has_it_counted_again(store, clock):
    dispatch = dispatch_row("d", "org/npu", clock.now())
    async with store.transaction() as tx:
        await dispatches.add_dispatch(tx, dispatch)
        row = reported(dispatch, clock.now(), conclusion=None)
        await jobs.add_jobs(tx, {row["job_key"]: row})
    clock.advance(60)
    async with store.transaction() as tx:
        (running,) = await tasks.claim(tx, owner="test", limit=9, kinds=["sum"], background=True)
    await sums.recount_place(Context(store), running)
    async with store.transaction() as tx:
        assert await jobs.change_if_unchanged(tx, row, {"status": "completed", "conclusion": "success"})
    async with store.transaction() as tx:
        await tasks.finish(tx, [running])
    assert (await kept(store, 0))["org/npu"].success == 1  # counted from its rows
    await count_changed(Context(store))
    async with store.read() as tx:
        assert await daily_sums.pending_days(tx, 0) == set()
    assert (await kept(store, 0))["org/npu"].success == 1


@pytest.mark.logic
async def test_a_day_is_counted_in_the_same_room_however_many_jobs_it_has(store, clock):
    dispatch = dispatch_row("d", "org/npu", clock.now())
    rows = [reported(dispatch, clock.now(), job=f"job {n}") for n in range(6_000)]
    async with store.transaction() as tx:
        await dispatches.add_dispatch(tx, dispatch)
        await jobs.add_jobs(tx, {row["job_key"]: row for row in rows})
    async with store.read() as tx:
        places = list(await daily_sums.pending_days(tx, 0))
        tracemalloc.start()
        try:
            found = await daily_sums.count_days(tx, places)
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert [one.tally.success for one in found] == [len(rows)]
    assert most < 2_000_000  # bytes; all rows at once take five times that


@pytest.mark.parametrize("seed", samples.each(4, range(4)))
async def test_days_kept_agree_with_all_rows_counted_plainly(store, clock, seed):
    chance = random.Random(seed)
    known, rows = [], {}
    for step in range(60):
        clock.advance(chance.choice([60, 3_600, 30_000]))
        async with store.transaction() as tx:
            if not known or chance.random() < 0.3:
                dispatch = dispatch_row(
                    f"d{step}", chance.choice(BACKENDS), clock.now(), chance.choice(["sent", "pending"])
                )
                known.append(dispatch)
                await dispatches.add_dispatch(tx, dispatch)
            dispatch = chance.choice(known)
            what = chance.random()
            if what < 0.5:
                row = reported(
                    dispatch, clock.now(), job=chance.choice("ab"), attempt=chance.randint(1, 3),
                    conclusion=chance.choice([*CONCLUSIONS, None]), flags=chance.choice([{}, {}, {"refused": True}]),
                    source=chance.choice(["callback", "callback", "relay"]),
                )  # fmt: skip
                if row["job_key"] not in rows:
                    rows[row["job_key"]] = row
                    await jobs.add_jobs(tx, {row["job_key"]: row})
            elif what < 0.7 and rows:
                row = chance.choice(list(rows.values()))
                change = {
                    "status": "completed",
                    "conclusion": chance.choice(CONCLUSIONS),
                    "updated_at": clock.now(),
                }
                if chance.random() < 0.5 and await jobs.change_if_unchanged(tx, row, change):
                    row |= change
                else:
                    row |= change
                    await jobs.change_jobs(tx, {row["job_key"]: row})
            elif what < 0.9:
                state = chance.choice(["never_started", "failed", "superseded", "sent"])
                await dispatches.change_dispatch(tx, dispatch["id"], state=state)
            else:
                await dispatches.supersede_unsent(tx, "org/up", 1, but_head=None)
        if chance.random() < 0.2:
            await count_changed(Context(store))
        if step % 10 == 0:
            await agree(store, clock)
    await agree(store, clock)
    await count_changed(Context(store))
    async with store.read() as tx:
        assert await daily_sums.pending_days(tx, 0) == set()
    await agree(store, clock)
