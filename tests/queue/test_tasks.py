"""Promises of the queue: merging by key, one running task per key, nothing lost; on both databases."""

import asyncio
import itertools
import random
from collections import Counter

import pytest
import sqlalchemy as sa

from bot.queue import tasks as queue
from bot.queue.tasks import ClaimedTask, task
from tests.db.opened import opened
from tests.serving import POSTGRES


@pytest.fixture
async def store(migrated_url, clock):
    async with opened(migrated_url, clock) as made:
        yield made


async def ask(store, key="a", kind="publish", **when):
    async with store.transaction() as tx:
        tx.enqueue(kind, key, **when)


async def claim(store, owner="one", limit=10):
    async with store.transaction() as tx:
        return await queue.claim(tx, owner=owner, limit=limit, kinds=("publish", "comment"))


async def end(store, how, done, **more):
    async with store.transaction() as tx:
        await how(tx, [done] if how is queue.finish else done, **more)


async def tasks(store, *columns):
    """Rows of the task table, oldest first: each a tuple of these columns, the state alone by default."""
    async with store.read() as tx:
        rows = await tx.rows(sa.select(task).order_by(task.c.id))
    return [tuple(row[name] for name in columns) if columns else row["state"] for row in rows]


async def test_requests_for_one_key_merge_into_the_earliest(store, clock):
    now = clock.now()
    await ask(store, delay=30)
    await ask(store, delay=10)
    await ask(store, delay=20)
    await ask(store, key="b")
    await ask(store, kind="comment", delay=5)
    assert await tasks(store, "kind", "key", "due_at") == [
        ("publish", "a", now + 10_000), ("publish", "b", now), ("comment", "a", now + 5_000),
    ]  # fmt: skip


async def test_requests_of_one_transaction_merge_too(store, clock):
    async with store.transaction() as tx:
        for delay in (30, 10, 20):
            tx.enqueue("publish", "a", delay=delay)
    assert await tasks(store, "due_at") == [(clock.now() + 10_000,)]


async def test_a_debounced_task_is_pushed_back_until_its_longest_wait(store, clock):
    first = clock.now()
    due = []
    for _ in range(10):
        await ask(store, delay=10, max_wait=60)
        due += [at - first for (at,) in await tasks(store, "due_at")]
        clock.advance(8)
    assert due == [10_000, 18_000, 26_000, 34_000, 42_000, 50_000, 58_000, 60_000, 60_000, 60_000]


async def test_an_undebounced_request_pulls_a_debounced_task_forward(store, clock):
    await ask(store, delay=10, max_wait=60)
    await ask(store, delay=2)
    assert await tasks(store, "due_at") == [(clock.now() + 2_000,)]


async def test_of_one_key_one_runs_and_one_waits(store):
    await ask(store)
    (running,) = await claim(store)
    await ask(store)
    await ask(store)
    assert await tasks(store) == ["running", "waiting"]
    assert await claim(store, owner="two") == []
    await end(store, queue.finish, running)
    (again,) = await claim(store, owner="two")
    assert again.id != running.id
    assert again.attempts == 1


async def test_tasks_are_claimed_by_due_time_and_none_before_it(store, clock):
    for key, delay in (("late", 20), ("soon", 5), ("now", 0), ("later", 30)):
        await ask(store, key=key, delay=delay)
    assert [one.key for one in await claim(store)] == ["now"]
    clock.advance(20)
    assert [one.key for one in await claim(store, limit=1)] == ["soon"]
    assert [one.key for one in await claim(store)] == ["late"]


async def test_a_task_outlives_the_process_that_claimed_it(store, clock):
    await ask(store)
    await claim(store, owner="crashed")
    async with store.transaction() as tx:
        assert await queue.release(tx) == 0
    clock.advance(31)
    async with store.transaction() as tx:
        assert await queue.release(tx) == 1
    (again,) = await claim(store, owner="two")
    assert again.attempts == 2


async def test_a_renewed_lease_keeps_its_task(store, clock):
    await ask(store)
    await claim(store, owner="alive")
    for _ in range(5):
        clock.advance(20)
        async with store.transaction() as tx:
            await queue.renew(tx, owner="alive")
            await queue.renew(tx, owner="somebody else")
            assert await queue.release(tx) == 0
    assert await tasks(store) == ["running"]


async def test_a_stopping_process_returns_its_own_tasks_only(store):
    await ask(store, key="a")
    await claim(store, owner="stopping")
    await ask(store, key="b")
    await claim(store, owner="staying")
    async with store.transaction() as tx:
        assert await queue.release(tx, owner="stopping") == 1
    assert await tasks(store, "key", "state") == [("a", "waiting"), ("b", "running")]


async def test_a_lost_task_joins_the_one_that_waits(store, clock):
    await ask(store)
    await claim(store, owner="crashed")
    await ask(store, delay=5)
    clock.advance(31)
    async with store.transaction() as tx:
        await queue.release(tx)
    assert await tasks(store) == ["done", "waiting"]
    (again,) = await claim(store)
    assert again.attempts == 2


@pytest.mark.parametrize("ending", ["finish", "retry", "give_up"])
async def test_a_process_that_lost_its_lease_has_no_say_any_more(store, clock, ending):
    await ask(store)
    (slow,) = await claim(store, owner="slow")
    clock.advance(31)
    async with store.transaction() as tx:
        await queue.release(tx)
    (taken,) = await claim(store, owner="quick")
    await ask(store, delay=7)
    kept = await tasks(store, "state", "owner", "due_at", "attempts", "error")
    more = {"finish": {}, "retry": {"due_at": 0, "error": "slow"}, "give_up": {"error": "slow"}}[ending]
    await end(store, getattr(queue, ending), slow, **more)
    assert await tasks(store, "state", "owner", "due_at", "attempts", "error") == kept
    await end(store, queue.finish, taken)
    assert await tasks(store) == ["done", "waiting"]


async def test_a_failed_task_waits_again_with_its_reason(store, clock):
    await ask(store)
    (failed,) = await claim(store)
    await end(store, queue.retry, failed, due_at=clock.now() + 5_000, error="no answer")
    assert await tasks(store, "state", "error", "owner") == [("waiting", "no answer", None)]
    assert await claim(store) == []
    clock.advance(5)
    (again,) = await claim(store)
    assert (again.id, again.attempts) == (failed.id, 2)


async def test_a_failed_task_joins_a_newer_one_and_keeps_its_wait(store, clock):
    await ask(store)
    (failed,) = await claim(store)
    await ask(store)
    await end(store, queue.retry, failed, due_at=clock.now() + 5_000, error="no answer")
    assert await tasks(store, "state", "attempts", "error") == [
        ("done", 1, "no answer"), ("waiting", 1, "no answer"),
    ]  # fmt: skip
    assert await claim(store) == []
    clock.advance(5)
    (again,) = await claim(store)
    assert again.attempts == 2


async def test_a_task_that_yields_does_not_push_the_newer_one_back(store, clock):
    await ask(store)
    (early,) = await claim(store)
    await ask(store, delay=2)
    await end(store, queue.retry, early, due_at=clock.now() + 5_000, error="not yet", yields=True)
    assert await tasks(store, "state", "due_at") == [("done", clock.now()), ("waiting", clock.now() + 2_000)]
    clock.advance(2)
    (again,) = await claim(store)
    await ask(store, delay=9)
    await end(store, queue.retry, again, due_at=clock.now() + 5_000, error="not yet", yields=True)
    assert (await tasks(store, "state", "due_at"))[-1] == ("waiting", clock.now() + 5_000)


async def test_a_task_given_up_stays_to_be_seen_and_does_not_block_its_key(store):
    await ask(store)
    (hopeless,) = await claim(store)
    await end(store, queue.give_up, hopeless, error="GitHub answered 422")
    await ask(store)
    assert await tasks(store, "state", "error") == [("dead", "GitHub answered 422"), ("waiting", None)]
    assert len(await claim(store)) == 1


async def test_a_task_given_up_again_is_seen_once_with_its_last_reason(store):
    for reason in ("may not", "still may not"):
        await ask(store)
        await ask(store, key="b")
        for one in await claim(store):
            await end(store, queue.give_up, one, error=reason)
    assert await tasks(store, "key", "state", "error") == [
        ("a", "dead", "still may not"), ("b", "dead", "still may not"),
    ]  # fmt: skip


async def test_once_a_task_succeeds_nothing_of_its_key_is_given_up_any_more(store):
    await ask(store)
    await ask(store, key="b")
    for one in await claim(store):
        await end(store, queue.give_up, one, error="may not")
    await ask(store)
    (again,) = await claim(store)
    await end(store, queue.finish, again)
    assert await tasks(store, "key", "state", "error") == [
        ("a", "done", "may not"), ("b", "dead", "may not"), ("a", "done", None),
    ]  # fmt: skip


async def test_tasks_that_end_together_settle_their_own_keys_only(store, clock):
    for kind, key in itertools.product(("publish", "comment"), "ab"):
        await ask(store, key, kind)
        (hopeless,) = await claim(store)
        await end(store, queue.give_up, hopeless, error="may not")
    await ask(store, "a")
    await ask(store, "b", "comment")
    await ask(store, "c")
    done = await claim(store)
    clock.advance(queue.LEASE / 1000 + 1)
    async with store.transaction() as tx:  # as another process does with a task whose owner was frozen
        await queue.release(tx)
    lost, *_ = await claim(store)
    async with store.transaction() as tx:
        assert await queue.finish(tx, done) == set()
        again = [
            queue.Task(ClaimedTask(id=one.id, kind=one.kind, key=one.key, attempts=lost.attempts, cause=None))
            for one in done[:2]
        ]
        assert await queue.finish(tx, [*again, done[2]]) == {one.id for one in again}
    assert await tasks(store, "kind", "key", "state") == [
        ("publish", "a", "done"), ("publish", "b", "dead"), ("comment", "a", "dead"), ("comment", "b", "done"),
        ("publish", "a", "done"), ("comment", "b", "done"), ("publish", "c", "running"),
    ]  # fmt: skip


async def test_tasks_of_a_transaction_that_failed_were_never_asked_for(store):
    async def fail():
        async with store.transaction() as tx:
            tx.enqueue("publish", "a")
            await tx.run_before_commit()
            raise ValueError("wrong")

    with pytest.raises(ValueError, match="wrong"):
        await fail()
    assert await tasks(store) == []


@POSTGRES
async def test_processes_sharing_a_database_never_run_one_key_twice_at_once(store, database_url, clock):
    seed = random.randrange(10**6)
    dice, keys = random.Random(seed), "abc"
    async with opened(database_url, clock) as other:
        running, ran = set(), Counter()

        async def work(mine, owner):
            for _ in range(25):
                for one in await claim(mine, owner=owner, limit=2):
                    assert one.key not in running, f"seed {seed}"
                    running.add(one.key)
                    await ask(mine, key=dice.choice(keys))
                    running.remove(one.key)
                    ran[one.key] += 1
                    if dice.random() < 0.4:
                        await end(mine, queue.retry, one, due_at=0, error="again")
                    else:
                        await end(mine, queue.finish, one)

        async def demand(mine):
            for _ in range(50):
                await ask(mine, key=dice.choice(keys))

        await asyncio.gather(
            *(work(mine, f"owner {n}") for n, mine in enumerate((store, other, store, other))),
            *(demand(mine) for mine in (store, other)),
        )
    assert all(ran[key] for key in keys)
    states = Counter(await tasks(store, "key", "state"))
    assert all(count <= 1 for (_, state), count in states.items() if state in {"waiting", "running"})
    assert not any(state == "running" for _, state in states)
