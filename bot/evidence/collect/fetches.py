"""Rows about the fetching of logs, artifacts and uploads and the listing of a run's artifacts; keys of their tasks."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from bot.core.errors import GiveUp
from bot.db.rows import select
from bot.db.statements import RowStatement, Statement
from bot.db.transaction import insert_into
from bot.evidence.collect.tables import FetchRow, ListingRow, ci_fetch, ci_listing
from bot.ingest.tables import records
from bot.jobs.collection import FINAL_STATES, FetchState

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from bot.db.transaction import Transaction
    from bot.ingest.record_rows import WorkflowRunRow

MINUTE, DAY = 60_000, 86_400_000  # milliseconds
RECENT = 3 * DAY
OVERDUE = 15 * MINUTE  # after which a wanted fetch, or a run that has ended, is looked at again
OVERDUE_MOST = 500  # of each: the next look is ten minutes away
FETCH, LISTING, RUN = ci_fetch.c, ci_listing.c, records["workflow_run"].c

# put together once, since they run for every run and job that is collected
SAME_RUN = (
    LISTING.repository_id == sa.bindparam("of_repository"),
    LISTING.run_id == sa.bindparam("of_run"),
    LISTING.run_attempt == sa.bindparam("of_attempt"),
)
FIND_LISTING = RowStatement(select(ListingRow, ci_listing).where(*SAME_RUN))
SAME_FETCH = (
    FETCH.repository_id == sa.bindparam("of_repository"),
    FETCH.kind == sa.bindparam("of_kind"),
    FETCH.object_id == sa.bindparam("of_object"),
)
FIND_FETCH = RowStatement(select(FetchRow, ci_fetch).where(*SAME_FETCH))
BEGIN_TRY = Statement(
    sa.update(ci_fetch)
    .where(*SAME_FETCH, FETCH.state.not_in(sorted(FINAL_STATES)))
    .values(tries=FETCH.tries + 1, due_at=None)
)
SETTLE = Statement(sa.update(ci_fetch).where(*SAME_FETCH))


def object_key(repo: str, identifier: int) -> str:
    """Return the key of a job's log or of an artifact."""
    return f"{repo}#{identifier}"


def parse_object_key(key: str) -> tuple[str, int]:
    """Return repository and id; raises GiveUp when the key names none."""
    repo, _, identifier = key.rpartition("#")
    if not repo or not identifier.isdigit():
        raise GiveUp(f"{key!r} names no log or artifact")
    return repo, int(identifier)


def run_key(repo: str, run_id: int, attempt: int) -> str:
    """Return the key of an attempt of a run."""
    return f"{repo}/{run_id}/{attempt}"


def parse_run_key(key: str) -> tuple[str, int, int]:
    """Return repository, run and attempt; raises GiveUp when the key names none."""
    repo, _, rest = key.rpartition("/")
    repo, _, run_id = repo.rpartition("/")
    if repo.count("/") != 1 or not run_id.isdigit() or not rest.isdigit():
        raise GiveUp(f"{key!r} names no attempt of a run")
    return repo, int(run_id), int(rest)


async def find_fetch(tx: Transaction, repository_id: int, kind: str, object_id: int) -> FetchRow | None:
    """Return the fetch of a log, an artifact or an upload."""
    return await tx.fetch_first(FIND_FETCH, _key(repository_id, kind, object_id))


async def fetches_of_run(tx: Transaction, repository_id: int, run_id: int, kind: str) -> dict[int, FetchRow]:
    """Return the fetches of one kind in a run, by object."""
    query = select(FetchRow, ci_fetch).where(
        FETCH.repository_id == repository_id, FETCH.run_id == run_id, FETCH.kind == kind
    )
    return {row["object_id"]: row for row in await tx.fetch(query)}


async def want_fetches(tx: Transaction, rows: Sequence[dict[str, Any]]) -> None:
    """Note that logs or artifacts are to be fetched; fetches noted before stay as they are."""
    blank = {"state": FetchState.WANTED.value, "tries": 0, "asked_at": tx.now}
    if rows:
        await tx.upsert(ci_fetch, [blank | row for row in rows])


async def retry_fetches(tx: Transaction, repository_id: int, kind: str, object_ids: Collection[int]) -> None:
    """Reset some fetches, so that they are made again."""
    these = (FETCH.repository_id == repository_id, FETCH.kind == kind, FETCH.object_id.in_(list(object_ids)))
    blank = {"state": FetchState.WANTED.value, "tries": 0, "error": None, "due_at": None, "asked_at": tx.now}
    await tx.run(sa.update(ci_fetch).where(*these).values(blank))


async def begin_try(tx: Transaction, repository_id: int, kind: str, object_id: int) -> FetchRow | None:
    """Count a try and return the fetch; None where it has ended."""
    done = await tx.run(BEGIN_TRY, _key(repository_id, kind, object_id))
    return await find_fetch(tx, repository_id, kind, object_id) if done.rowcount else None


async def settle_fetch(tx: Transaction, row: FetchRow, state: FetchState, **values: Any) -> None:
    """Set the state of a fetch, and what goes with it."""
    done_at = tx.now if state in FINAL_STATES else None
    changed = {"error": None, "due_at": None, "done_at": done_at} | values | {"state": state.value}
    key = _key(row["repository_id"], row["kind"], row["object_id"])
    await tx.run(SETTLE, changed | key)


async def count_states(tx: Transaction) -> list[tuple[int, str, int, int]]:
    """Return repository, state, how many fetches have it, and when the oldest of these was requested."""
    query = (
        sa.select(FETCH.repository_id, FETCH.state, sa.func.count(), sa.func.min(FETCH.asked_at))
        .group_by(FETCH.repository_id, FETCH.state)
        .order_by(FETCH.repository_id, FETCH.state)
    )
    return [tuple(row) for row in await tx.run(query)]


async def count_unfinished(tx: Transaction, run_ids: Collection[int]) -> tuple[int, int]:
    """Return how many fetches some runs have, and how many of them have ended."""
    query = (
        sa.select(FETCH.state, sa.func.count()).where(FETCH.run_id.in_(list(run_ids))).group_by(FETCH.state)
    )
    counts: dict[str, int] = dict((await tx.run(query)).all())
    return sum(counts.values()), sum(counts.values()) - counts.get(FetchState.WANTED.value, 0)


async def find_listing(tx: Transaction, run_row: WorkflowRunRow) -> ListingRow | None:
    """Return the listing of an attempt's artifacts."""
    key = {"of_repository": run_row["repository_id"], "of_run": run_row["id"]}
    return await tx.fetch_first(FIND_LISTING, key | {"of_attempt": run_row["run_attempt"]})


async def record_listing(
    tx: Transaction, run_row: WorkflowRunRow, state: str, *, artifacts: int = 0, error: str | None = None
) -> int:
    """Record that an attempt's artifacts were listed; returns how many times they have been."""
    row: ListingRow = {
        "repository_id": run_row["repository_id"],
        "run_id": run_row["id"],
        "run_attempt": run_row["run_attempt"],
        "passes": 1,
        "artifacts": artifacts,
        "state": state,
        "error": error,
        "at": tx.now,
    }
    return int((await tx.run(_listing_row(sqlite=tx.sqlite), row)).scalar_one())


async def overdue_listings(tx: Transaction) -> list[tuple[str, int, int]]:
    """Return ended runs (repository, run, attempt) of the last days whose artifacts were not or could not be listed."""
    seen = sa.exists().where(
        LISTING.repository_id == RUN.repository_id,
        LISTING.run_id == RUN.id,
        LISTING.run_attempt == RUN.run_attempt,
        (LISTING.state != "forbidden") | (LISTING.at > tx.now - DAY),
    )
    query = (
        sa.select(RUN.repo, RUN.id, RUN.run_attempt)
        .where(
            RUN.received_at > tx.now - RECENT,
            RUN.received_at < tx.now - OVERDUE,
            RUN.status == "completed",
            ~seen,
        )
        .order_by(RUN.received_at)
        .limit(OVERDUE_MOST)
    )
    return [tuple(row) for row in await tx.run(query)]


async def overdue_fetches(tx: Transaction) -> list[tuple[str, str, int]]:
    """Return overdue fetches (repository, kind, object), and once a day those that were forbidden."""
    waiting = (FETCH.state == "wanted") & (FETCH.asked_at < tx.now - OVERDUE)
    late = sa.func.coalesce(FETCH.due_at, 0) < tx.now - OVERDUE
    same_run = (
        (RUN.repository_id == FETCH.repository_id)
        & (RUN.id == FETCH.run_id)
        & (RUN.run_attempt == FETCH.run_attempt)
    )
    query = sa.select(RUN.repo, FETCH.kind, FETCH.object_id).join(records["workflow_run"], same_run)
    query = query.order_by(FETCH.asked_at).limit(OVERDUE_MOST)
    refused = (FETCH.state == "forbidden") & (FETCH.due_at < tx.now) & (FETCH.asked_at > tx.now - RECENT)
    overdue = [*await tx.run(query.where(waiting, late)), *await tx.run(query.where(refused))]
    return [tuple(row) for row in overdue]


async def blobs_ended_before(tx: Transaction, prefix: str, before: int, *, limit: int) -> list[str]:
    """Return some blobs with a prefix whose fetches ended before a time."""
    begins = FETCH.blob.startswith(prefix, autoescape=True)
    query = sa.select(FETCH.blob).where(FETCH.blob.is_not(None), begins, FETCH.done_at < before).limit(limit)
    return list((await tx.run(query)).scalars())


async def named_blobs(tx: Transaction, keys: Sequence[str]) -> set[str]:
    """Return those of some blobs that a fetch names."""
    named = sa.select(FETCH.blob).where(FETCH.blob.in_(list(keys)))
    return set((await tx.run(named)).scalars()) if keys else set()


async def forget_blobs(tx: Transaction, keys: Sequence[str], words: str) -> None:
    """Note that blobs are gone before deleting them: one that is left over has no row, and is deleted later."""
    gone = {"blob": None, "state": FetchState.EXPIRED.value, "error": words}
    if keys:
        await tx.run(sa.update(ci_fetch).where(FETCH.blob.in_(list(keys))).values(gone))


def _key(repository_id: int, kind: str, object_id: int) -> dict[str, object]:
    return {"of_repository": repository_id, "of_kind": kind, "of_object": object_id}


@functools.cache
def _listing_row(*, sqlite: bool) -> Statement:
    """Return the statement that records a listing, and counts it where there was one before."""
    insert = insert_into(ci_listing, sqlite=sqlite)
    new = insert.excluded
    again = {name: new[name] for name in ("artifacts", "state", "error", "at")}
    again["passes"] = LISTING.passes + new.passes
    keys = ["repository_id", "run_id", "run_attempt"]
    return Statement(insert.on_conflict_do_update(index_elements=keys, set_=again).returning(LISTING.passes))
