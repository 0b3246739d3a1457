"""What have the backends said? Reads and writes of oot_workflow_job and oot_run."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import msgspec
import sqlalchemy as sa

from bot.store import rollup
from bot.store.tables import UNHEARD, oot_dispatch, oot_run, oot_workflow_job, records

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from bot.store.limits import Limits
    from bot.store.transaction import Transaction

Row = dict[str, Any]
IDENTITY = ("downstream_repo", "delivery_id", "run_id", "run_attempt", "workflow_name", "job_name")
PAGE = 500  # silent jobs concluded in one transaction
_HEAVY = ("failed_tests_json", "environment")
_LIGHT = sa.select(
    *(one for one in oot_workflow_job.c if one.name not in _HEAVY),
    *(sa.null().label(name) for name in _HEAVY),
)
LENGTH_OF_TESTS = sa.func.coalesce(  # characters, of all jobs of a group
    sa.func.sum(sa.func.length(sa.cast(oot_workflow_job.c.failed_tests_json, sa.Text))), 0
)
BLANK: Row = dict.fromkeys(oot_workflow_job.c.keys())

_change = (
    sa.update(oot_workflow_job)
    .where(oot_workflow_job.c.job_key == sa.bindparam("new_job_key"))
    .values({name: sa.bindparam(f"new_{name}") for name in BLANK if name != "job_key"})
)


def job_key(row: Row) -> str:
    """Return the key of one attempt of one job; parts are never joined, so none can pose as two."""
    parts = [row[name] for name in IDENTITY]
    parts[0] = parts[0].casefold()
    if row["source"] != "callback":
        # what a relay tells is never mistaken for what the backend told us itself
        parts.append(row["source"])
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()


async def get(tx: Transaction, keys: Collection[str], *, held: bool = True) -> dict[str, Row]:
    """Return jobs by key; `held`: their rows are this transaction's until it ends, for who goes on to change them."""
    if not keys:
        return {}
    query = sa.select(oot_workflow_job).where(oot_workflow_job.c.job_key.in_(sorted(keys)))
    # one order for all, so that two transactions never wait for each other
    query = query.order_by(oot_workflow_job.c.job_key)
    rows = await tx.rows(query.with_for_update() if held and not tx.sqlite else query)
    return {row["job_key"]: row for row in rows}


async def add(tx: Transaction, rows: Mapping[str, Row]) -> set[str]:
    """Insert jobs by key; returns the keys that somebody else inserted meanwhile."""
    if not rows:
        return set()
    await _hear(tx, {told for row in rows.values() if (told := row.get("dispatch_id"))})
    # only now: who gives up a dispatch at this moment has done so, or never will
    await rollup.touch_jobs(tx, rows.values())
    statement = tx.insert(oot_workflow_job).on_conflict_do_nothing()
    ordered = [BLANK | rows[key] for key in sorted(rows)]
    if tx.sqlite:  # the only writer: nothing can have come in between
        await tx.run(statement, ordered)
        return set()
    done = await tx.run(statement.returning(oot_workflow_job.c.job_key), ordered)
    return set(rows) - set(done.scalars())


async def _hear(tx: Transaction, dispatches: Collection[str]) -> None:
    """Note which dispatches are reported on for the first time."""
    if not dispatches:
        return
    told = oot_dispatch.c
    unheard = sa.select(told.id).where(told.id.in_(sorted(dispatches)), UNHEARD)
    # one order for all, so that two transactions never wait for each other
    unheard = unheard.order_by(told.id)
    found = list((await tx.run(unheard if tx.sqlite else unheard.with_for_update())).scalars())
    if found:
        await tx.run(sa.update(oot_dispatch).where(told.id.in_(found)).values(heard_at=tx.now))


async def change(tx: Transaction, rows: Mapping[str, Row]) -> None:
    """Write jobs that `get` returned to this transaction."""
    if rows:
        await rollup.touch_jobs(tx, rows.values())
        await tx.run(
            _change, [{f"new_{name}": row[name] for name in BLANK} for _, row in sorted(rows.items())]
        )


async def counts(tx: Transaction, dispatch_ids: Collection[str]) -> dict[str, int]:
    """Return how many jobs these dispatches have; without those that have none."""
    return await _of_each(tx, dispatch_ids, sa.func.count())


async def lengths_of_tests(tx: Transaction, dispatch_ids: Collection[str]) -> dict[str, int]:
    """Return how many characters of failed tests these dispatches hold; without those that have no jobs."""
    return await _of_each(tx, dispatch_ids, LENGTH_OF_TESTS)


async def _of_each(tx: Transaction, dispatch_ids: Collection[str], what: Any) -> dict[str, int]:
    if not dispatch_ids:
        return {}
    dispatch = oot_workflow_job.c.dispatch_id
    query = sa.select(dispatch, what.label("found")).where(dispatch.in_(sorted(dispatch_ids)))
    return {row["dispatch_id"]: int(row["found"]) for row in await tx.rows(query.group_by(dispatch))}


def in_order(rows: Collection[Row]) -> list[Row]:
    """Return jobs in the one order in which all change them, so that two transactions never wait for each other."""
    return sorted(rows, key=lambda row: row["job_key"])


async def move(tx: Transaction, job: Row, values: Row) -> bool:
    """Change a job if its status and conclusion are still what they were; returns whether they were.

    Whoever changes several takes them `in_order`.
    """
    same = (
        oot_workflow_job.c.job_key == job["job_key"],
        oot_workflow_job.c.status == job["status"],
        oot_workflow_job.c.conclusion.is_not_distinct_from(job["conclusion"]),
    )
    await rollup.touch_jobs(tx, [job])
    return bool((await tx.run(sa.update(oot_workflow_job).where(*same).values(values))).rowcount)


async def of_dispatches(
    tx: Transaction, dispatch_ids: Collection[str], *, tests_of: Collection[str] = ()
) -> list[Row]:
    """Return the jobs of these dispatches, in the order they were first heard of.

    Failed tests and environment can be megabytes: only of the dispatches `tests_of` are they read.
    """
    job = oot_workflow_job.c
    rest = sorted(set(dispatch_ids) - set(tests_of))
    rows = await tx.rows(_LIGHT.where(job.dispatch_id.in_(rest))) if rest else []
    if tests_of:
        rows += await tx.rows(sa.select(oot_workflow_job).where(job.dispatch_id.in_(sorted(tests_of))))
    return sorted(rows, key=lambda row: (row["received_at"], row["job_key"]))


async def silent(tx: Transaction, limits: Limits) -> list[Row]:
    """Return jobs that are in progress for longer than their backends may take, oldest first."""
    job = oot_workflow_job.c
    query = sa.select(oot_workflow_job).where(
        job.status == "in_progress",
        job.started_at < tx.now - limits.shortest,
        job.started_at < limits.since(tx.now, sa.func.lower(job.downstream_repo)),
    )
    return await tx.rows(query.order_by(job.started_at, job.job_key).limit(PAGE))


async def of_run(tx: Transaction, backend: str, run_id: str) -> list[Row]:
    """Return the jobs of one run of a backend, every attempt."""
    query = sa.select(oot_workflow_job).where(
        oot_workflow_job.c.run_id == run_id,
        sa.func.lower(oot_workflow_job.c.downstream_repo) == backend.lower(),
        oot_workflow_job.c.dispatch_id.is_not(None),
    )
    return await tx.rows(query)


async def reported(tx: Transaction, dispatch_id: str) -> bool:
    """Return whether anybody has reported on a dispatch."""
    query = sa.select(oot_workflow_job.c.job_key).where(oot_workflow_job.c.dispatch_id == dispatch_id)
    return await tx.row(query.limit(1)) is not None


async def words_of_github(tx: Transaction, runs: set[tuple[str, str]]) -> list[Row]:
    """Return GitHub's own word on runs, given as (backend, case folded; run id): status, conclusion, by attempt.

    What deliveries or the API told is in `workflow_run`; what asking in vain told, in oot_run: a run GitHub does not
    know is `missing` until it is heard of, one that did not end in time `unconfirmed`, one that it did not let us read
    in time `unreadable`, both until it ends.
    """
    run = records["workflow_run"]
    numbers = [
        int(run_id) for _, run_id in runs if run_id.isascii() and run_id.isdigit() and len(run_id) < 19
    ]
    key = sa.func.lower(run.c.repo).label("backend_key")
    told = await tx.rows(
        sa.select(
            key, run.c.id.label("run_id"), run.c.run_attempt, run.c.status, run.c.conclusion, run.c.event
        ).where(run.c.id.in_(numbers))
    )
    asked = await tx.rows(
        sa.select(oot_run).where(tx.among((oot_run.c.backend_key, oot_run.c.run_id), sorted(runs)))
    )
    words = [word | {"conclusion": None} for word in asked]
    words += [word | {"run_id": str(word["run_id"])} for word in told]
    known = [word for word in words if (word["backend_key"], word["run_id"]) in runs]
    return sorted(known, key=_weight)  # later ones win


async def word_of_github(tx: Transaction, backend: str, run_id: str, attempt: int) -> Row | None:
    """Return GitHub's own word on one attempt of one run, None when it has not said any."""
    words = await words_of_github(tx, {(backend.casefold(), run_id)})
    return next((word for word in reversed(words) if word["run_attempt"] == attempt), None)


def _weight(word: Row) -> int:
    """Return how much a word says: missing, then heard of, then unconfirmed, then ended."""
    return {"missing": 0, "unconfirmed": 2, "unreadable": 2, "completed": 3}.get(word["status"], 1)


async def keep_word(tx: Transaction, backend: str, run_id: str, attempt: int, status: str) -> None:
    """Keep what asking GitHub for a run told us when there is no run to record."""
    row = {
        "backend_key": backend.casefold(),
        "run_id": run_id,
        "run_attempt": attempt,
        "status": status,
        "checked_at": tx.now,
    }
    insert = tx.insert(oot_run).values(row)
    update = {"status": status, "checked_at": tx.now}
    await tx.run(insert.on_conflict_do_update(index_elements=list(row)[:3], set_=update))
