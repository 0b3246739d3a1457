"""Does the order of deliveries matter? It must not: every order, once or twice, ends in the same rows."""

import asyncio
import itertools
import random
from collections import Counter

import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st

import handlers
from bot.db.transaction import Transaction
from bot.ingest import tables as records
from bot.ingest.deliveries import Delivery
from bot.ingest.record_store import RECORDS
from bot.ingest.tables import from_payload, merge
from bot.ingest.tables import records as tables
from tests import samples
from tests.db.opened import opened
from tests.ingest.histories import HISTORIES, REPOSITORY, at
from tests.serving import POSTGRES

ROUTER = handlers.make_router()
RECEIVED = 1_790_000_000_000


def deliveries_of(life):
    """Every delivery has the time it was first received at, whenever it is handled."""
    return [
        Delivery(body, event=event, delivery_id=f"guid-{number}", received_at=RECEIVED + 1000 * number)
        for number, (event, body) in enumerate(life)
    ]


async def records_of(life):
    """The records of each delivery."""
    found = []
    for delivery in deliveries_of(life):
        gathering = Transaction(None, now=RECEIVED, sqlite=True)
        gathering.replaying = True  # records only: what else is to follow may depend on what is stored
        await ROUTER.dispatch(delivery, gathering)
        found.append(gathering.empty(RECORDS))
    return found


def rows_of(told):
    """The rows that these records end in."""
    rows = {}
    for record in itertools.chain.from_iterable(told):
        key = (record.type.table, record.key)
        rows[key] = merge(rows.get(key), record) or rows[key]
    return rows


@pytest.mark.parametrize("life", HISTORIES.values(), ids=HISTORIES)
async def test_every_order_ends_in_the_same_rows(life):
    told = await records_of(life)
    expected = rows_of(told)
    for order in itertools.permutations(told):
        assert rows_of(order) == expected


@pytest.mark.parametrize("life", HISTORIES.values(), ids=HISTORIES)
async def test_everything_twice_in_any_order_ends_in_the_same_rows(life):
    told = await records_of(life)
    expected, dice = rows_of(told), random.Random(1)
    for _ in range(500):
        order = dice.sample(told * 2, 2 * len(told))
        assert rows_of(order) == expected
        some = dice.sample(told, len(told)) + dice.sample(told, 2)
        assert rows_of(some) == expected


STATUSES = ["queued", "waiting", "in_progress", "completed", None]
maybe_time = st.sampled_from([None, at(1), at(2), at(3)])
maybe_text = st.sampled_from([None, "a", "b"])
things = st.fixed_dictionaries(
    {"id": st.just(1), "run_attempt": st.sampled_from([1, 1, 2]), "status": st.sampled_from(STATUSES),
     "conclusion": maybe_text, "name": maybe_text, "title": maybe_text, "number": st.just(1),
     "updated_at": maybe_time, "completed_at": maybe_time, "started_at": maybe_time},
)  # fmt: skip
bodies = st.tuples(things, st.sampled_from(["opened", "created", "edited", "deleted", None]))
KINDS = [
    records.WORKFLOW_JOB,
    records.WORKFLOW_RUN,
    records.CHECK_RUN,
    records.PULL_REQUEST,
    records.ISSUE,
    records.CHECK_SUITE,
]


@settings(max_examples=150)
@given(st.sampled_from(KINDS), st.lists(bodies, min_size=2, max_size=6), st.randoms(use_true_random=False))
def test_whatever_github_says_no_order_makes_a_difference(kind, told, dice):
    versions = [
        [from_payload(
            kind, {"action": action, kind.at: thing, "repository": REPOSITORY},
            guid=str(number), received_at=RECEIVED + number, deleted=action == "deleted",
        )]
        for number, (thing, action) in enumerate(told)
    ]  # fmt: skip
    expected = rows_of(versions)
    for _ in range(5):
        assert rows_of(dice.sample(versions * 2, 2 * len(versions))) == expected


async def test_a_completed_job_is_never_undone_and_nothing_known_of_it_is_lost():
    rows = rows_of(reversed(await records_of(HISTORIES["workflow_job"])))
    (row,) = [row for (table, _), row in rows.items() if table == "workflow_job"]
    assert (row["status"], row["completed_at"] is not None) == ("completed", True)
    assert (row["runner_name"], row["labels"]) == ("runner 1", ["gpu"])
    assert row["started_at"] is not None
    assert row["received_at"] == RECEIVED


async def test_both_databases_end_in_the_rows_of_memory_in_any_order(migrated_url, clock):
    dice = random.Random(2)
    life = list(itertools.chain.from_iterable(HISTORIES.values()))
    expected = {
        (table, key): {name: value for name, value in row.items() if name != "merge_state"}
        for (table, key), row in rows_of(await records_of(life)).items()
    }
    tables_of = Counter(table for table, _ in expected)
    assert tables_of == {
        "workflow_job": 1, "workflow_run": 2, "check_run": 1, "pull_request": 1, "issue": 1,
        "pull_head": 2, "pull_label_event": 2, "issue_label_event": 2, "repository": 1,
    }  # fmt: skip
    async with opened(migrated_url, clock) as store:
        for _ in range(2):
            order = dice.sample(deliveries_of(life) * 2, 2 * len(life))
            while order:
                some, order = order[: (size := dice.choice([1, 1, 2, 5]))], order[size:]
                async with store.transaction() as tx:
                    for delivery in some:
                        await ROUTER.dispatch(delivery, tx)
            assert await stored(store) == expected
            await forget(store)


@pytest.mark.parametrize("life", HISTORIES.values(), ids=HISTORIES)
@pytest.mark.parametrize("apart", samples.each(2, [7, 1]))
async def test_every_order_ends_in_the_same_rows_of_both_databases(life, apart, migrated_url, clock):
    """Each order in a repository of its own; each event once, and for every other order then twice."""
    orders = [list(order) for order in itertools.permutations(range(len(life)))][::apart]
    orders = [order + order[::-1] if number % 2 else order for number, order in enumerate(orders)]
    async with opened(migrated_url, clock) as store:
        for step in range(2 * len(life)):
            async with store.transaction() as tx:
                for number, order in enumerate(orders):
                    if step < len(order):
                        await ROUTER.dispatch(moved(deliveries_of(life)[order[step]], number), tx)
        ends = {}
        for (table, key), row in (await stored(store)).items():
            if table != "repository":
                ends.setdefault(key[0], {})[table, key[1:]] = told_of(row)
    assert len(ends) == len(orders)
    expected = {
        (table, key[1:]): {
            name: row[name] for name in row if name not in {"repository_id", "repo", "merge_state"}
        }
        for (table, key), row in rows_of(await records_of(life)).items()
        if table != "repository"
    }
    assert [order for order, end in zip(orders, ends.values(), strict=True) if end != expected] == []


def told_of(row):
    """A row without what says which repository it is in, and without what merging needs."""
    return {
        name: value for name, value in row.items() if name not in {"repository_id", "repo", "merge_state"}
    }


def moved(delivery, number):
    """The same delivery in another repository."""
    repository = delivery.data["repository"] | {"id": 1_000_000 + number, "full_name": f"org/r{number}"}
    delivery.data = delivery.data | {"repository": repository}
    return delivery


async def stored(store):
    """Every record as the database has it."""
    found = {}
    async with store.read() as tx:
        for name, table in tables.items():
            for row in await tx.rows(sa.select(table)):
                row.pop("merge_state")
                found[name, tuple(row[column.name] for column in table.primary_key.columns)] = row
    return found


async def forget(store):
    async with store.transaction() as tx:
        for table in tables.values():
            await tx.run(sa.delete(table))


def job(number):
    body = {"action": "queued", "workflow_job": {"id": number, "run_id": 1, "status": "queued"}}
    body["repository"] = REPOSITORY
    return Delivery(body, event="workflow_job", delivery_id=f"g-{number}", received_at=RECEIVED + number)


@POSTGRES
async def test_workers_that_say_what_is_known_of_a_repository_do_not_wait_for_each_other(migrated_url, clock):
    async with opened(migrated_url, clock) as store:
        async with store.transaction() as tx:
            await ROUTER.dispatch(job(1), tx)
        async with store.transaction() as first:
            await ROUTER.dispatch(job(2), first)
            await first.run_before_commit()
            async with asyncio.timeout(5), store.transaction(lock_timeout=2) as second:
                await ROUTER.dispatch(job(3), second)
        async with store.read() as tx:
            assert len(await tx.rows(sa.select(tables["workflow_job"]))) == 3


@POSTGRES
async def test_workers_that_meet_the_same_new_jobs_in_another_order_never_wait_in_a_circle(
    migrated_url, clock
):
    """Each waits for the first to commit what both insert: in two orders that is a deadlock, which ends one of them."""

    async def handle(numbers):
        async with store.transaction() as tx:
            for number in numbers:
                await ROUTER.dispatch(job(number), tx)

    async with opened(migrated_url, clock) as store:
        await handle([0])
        for first in range(1, 2_400, 300):
            numbers = range(first, first + 300)
            await asyncio.gather(handle(numbers), handle(reversed(numbers)))
