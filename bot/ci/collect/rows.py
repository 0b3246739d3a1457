"""Statements about artifacts, fetches and the runs and jobs they are of; times are epoch milliseconds."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, TypedDict

import sqlalchemy as sa

from bot.ci.collect.states import FINAL, State
from bot.ci.collect.tables import ci_artifact, ci_fetch, ci_listing, ci_storage_day
from bot.db.rows import select
from bot.db.statements import RowStatement, Statement
from bot.db.transaction import insert_into
from bot.ingest import watched
from bot.ingest.rows import WorkflowJobRow, WorkflowRunRow
from bot.ingest.tables import records

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from bot.db.transaction import Transaction

DAY = 86_400_000  # milliseconds
RUN, JOB, REPOSITORY = records["workflow_run"], records["workflow_job"], records["repository"]


OF_REPOSITORY: sa.BindParameter[int] = sa.bindparam("of_repository")
OF_RUN: sa.BindParameter[int] = sa.bindparam("of_run")
OF_ATTEMPT: sa.BindParameter[int] = sa.bindparam("of_attempt")
# put together once, since they run for every run and job that is collected
ATTEMPT = RowStatement(select(WorkflowRunRow, RUN).where(RUN.c.id == OF_RUN, RUN.c.run_attempt == OF_ATTEMPT))
ATTEMPTS = Statement(
    sa.select(RUN.c.run_attempt, RUN.c.run_started_at).where(
        RUN.c.id == OF_RUN, RUN.c.repository_id == OF_REPOSITORY
    )
)
JOBS = RowStatement(
    select(WorkflowJobRow, JOB)
    .where(JOB.c.run_id == OF_RUN, JOB.c.repository_id == OF_REPOSITORY)
    .order_by(JOB.c.id)
)
FACTS = Statement(
    sa.select(REPOSITORY.c.private, REPOSITORY.c.default_branch).where(
        REPOSITORY.c.repository_id == OF_REPOSITORY
    )
)
LISTING = Statement(
    sa.select(ci_listing).where(
        ci_listing.c.repository_id == OF_REPOSITORY,
        ci_listing.c.run_id == OF_RUN,
        ci_listing.c.run_attempt == OF_ATTEMPT,
    )
)
OF_FETCH = (
    ci_fetch.c.repository_id == OF_REPOSITORY,
    ci_fetch.c.kind == sa.bindparam("of_kind"),
    ci_fetch.c.object_id == sa.bindparam("of_object"),
)
FETCH = Statement(sa.select(ci_fetch).where(*OF_FETCH))
BEGIN_TRY = Statement(
    sa.update(ci_fetch)
    .where(*OF_FETCH, ci_fetch.c.state.not_in(sorted(FINAL)))
    .values(tries=ci_fetch.c.tries + 1, due_at=None)
)
SETTLE = Statement(sa.update(ci_fetch).where(*OF_FETCH))


class ArtifactRow(TypedDict):
    """An artifact of a run."""

    repository_id: int
    id: int
    run_id: int
    run_attempt: int
    job_id: int | None
    name: str
    kind: str
    size_in_bytes: int
    digest: str | None
    created_at: int | None
    updated_at: int | None
    expires_at: int | None
    expired: bool
    head_sha: str
    trusted: bool
    flags: list[str]


class FetchRow(TypedDict):
    """The fetching of one log or artifact."""

    repository_id: int
    kind: str
    object_id: int
    run_id: int
    run_attempt: int
    job_id: int | None
    state: str
    tries: int
    due_at: int | None
    size: int | None
    sha256: str | None
    blob: str | None
    parser: str | None
    error: str | None
    asked_at: int
    done_at: int | None


class ListingRow(TypedDict):
    """The passes over the artifacts of one attempt of a run."""

    repository_id: int
    run_id: int
    run_attempt: int
    passes: int
    artifacts: int
    state: str
    error: str | None
    at: int


class RepositoryFacts(TypedDict):
    """What is known of a repository."""

    private: bool | None
    default_branch: str | None


async def run(tx: Transaction, run_id: int, attempt: int) -> WorkflowRunRow | None:
    """Return an attempt of a run: GitHub's ids are unique across repositories."""
    return await tx.fetch_first(ATTEMPT, {"of_run": run_id, "of_attempt": attempt})


async def attempts(tx: Transaction, repository_id: int, run_id: int) -> dict[int, int | None]:
    """Return when each known attempt of a run began."""
    found = await tx.run(ATTEMPTS, {"of_run": run_id, "of_repository": repository_id})
    return {row.run_attempt: row.run_started_at for row in found.all()}


async def job(tx: Transaction, repo: str, job_id: int) -> WorkflowJobRow | None:
    """Return a job by the repository's name as its record spells it, in any case."""
    query = select(WorkflowJobRow, JOB).where(JOB.c.id == job_id, sa.func.lower(JOB.c.repo) == repo.lower())
    return await tx.fetch_first(query)


async def job_of(tx: Transaction, owners: Collection[int], job_id: int) -> WorkflowJobRow | None:
    """Return a job of one of some repositories."""
    query = select(WorkflowJobRow, JOB).where(JOB.c.repository_id.in_(sorted(owners)), JOB.c.id == job_id)
    return await tx.fetch_first(query)


async def runs_of(tx: Transaction, owners: Collection[int], run_id: int) -> list[WorkflowRunRow]:
    """Return the attempts of a run of one of some repositories, newest first."""
    query = select(WorkflowRunRow, RUN).where(RUN.c.repository_id.in_(sorted(owners)), RUN.c.id == run_id)
    return await tx.fetch(query.order_by(RUN.c.run_attempt.desc()))


async def jobs(tx: Transaction, repository_id: int, run_id: int) -> list[WorkflowJobRow]:
    """Return the jobs of all attempts of a run."""
    return await tx.fetch(JOBS, {"of_run": run_id, "of_repository": repository_id})


async def repository(tx: Transaction, repository_id: int) -> RepositoryFacts:
    """Return what is known of a repository; nothing is, where it has no record."""
    found = await tx.row_as(RepositoryFacts, FACTS, {"of_repository": repository_id})
    return found or RepositoryFacts(private=None, default_branch=None)


async def artifact(tx: Transaction, repo: str, artifact_id: int) -> ArtifactRow | None:
    """Return an artifact by any name of its repository."""
    owners = sorted(await watched.ids(tx, repo))
    query = sa.select(ci_artifact).where(
        ci_artifact.c.repository_id.in_(owners), ci_artifact.c.id == artifact_id
    )
    return await tx.row_as(ArtifactRow, query)


async def record_artifacts(tx: Transaction, rows: Sequence[ArtifactRow], *, workflow: str) -> int:
    """Insert or update artifacts of one repository; returns how many are new. Those alone count as storage."""
    if not rows:
        return 0
    known = await _known(tx, rows)
    await tx.upsert(
        ci_artifact,
        rows,
        replaced=(
            "job_id", "kind", "size_in_bytes", "digest", "updated_at", "expires_at", "expired", "flags"
        ),
    )  # fmt: skip
    new = [row for row in rows if row["id"] not in known]
    for row in new:
        await _count(tx, row, workflow)
    return len(new)


async def _known(tx: Transaction, rows: Sequence[ArtifactRow]) -> set[int]:
    query = sa.select(ci_artifact.c.id).where(
        ci_artifact.c.repository_id == rows[0]["repository_id"],
        ci_artifact.c.id.in_([row["id"] for row in rows]),
    )
    return set((await tx.run(query)).scalars())


async def _count(tx: Transaction, row: ArtifactRow, workflow: str) -> None:
    counted = {
        "repository_id": row["repository_id"],
        "day": (row["created_at"] or tx.now) // DAY,
        "workflow": workflow,
        "artifacts": 1,
        "bytes": row["size_in_bytes"],
    }
    await tx.upsert(ci_storage_day, [counted], added=("artifacts", "bytes"))


async def listing(tx: Transaction, run_row: WorkflowRunRow) -> ListingRow | None:
    """Return the passes over an attempt's artifacts."""
    key = {"of_repository": run_row["repository_id"], "of_run": run_row["id"]}
    return await tx.row_as(ListingRow, LISTING, key | {"of_attempt": run_row["run_attempt"]})


async def record_listing(
    tx: Transaction, run_row: WorkflowRunRow, state: str, *, artifacts: int = 0, error: str | None = None
) -> int:
    """Record a pass over an attempt's artifacts; returns how many there were."""
    row = {
        "repository_id": run_row["repository_id"],
        "run_id": run_row["id"],
        "run_attempt": run_row["run_attempt"],
        "passes": 1,
        "artifacts": artifacts,
        "state": state,
        "error": error,
        "at": tx.now,
    }
    return int((await tx.run(_pass(sqlite=tx.sqlite), row)).scalar_one())


@functools.cache
def _pass(*, sqlite: bool) -> Statement:
    """Return the statement that records a pass, and counts it where there was one before."""
    insert = insert_into(ci_listing, sqlite=sqlite)
    new = insert.excluded
    again = {name: new[name] for name in ("artifacts", "state", "error", "at")}
    again["passes"] = ci_listing.c.passes + new.passes
    keys = ["repository_id", "run_id", "run_attempt"]
    return Statement(
        insert.on_conflict_do_update(index_elements=keys, set_=again).returning(ci_listing.c.passes)
    )


async def fetch(tx: Transaction, repository_id: int, kind: str, object_id: int) -> FetchRow | None:
    """Return the fetching of a log or an artifact."""
    return await tx.row_as(FetchRow, FETCH, _key(repository_id, kind, object_id))


async def fetches_of_run(tx: Transaction, repository_id: int, run_id: int, kind: str) -> dict[int, FetchRow]:
    """Return the fetches of one kind in a run, by object."""
    c = ci_fetch.c
    query = sa.select(ci_fetch).where(c.repository_id == repository_id, c.run_id == run_id, c.kind == kind)
    return {row["object_id"]: row for row in await tx.rows_as(FetchRow, query)}


async def want(tx: Transaction, rows: Sequence[dict[str, Any]]) -> None:
    """Note that some logs or artifacts are to be fetched; what was noted before stays as it is."""
    blank = {"state": State.WANTED.value, "tries": 0, "asked_at": tx.now}
    if rows:
        await tx.upsert(ci_fetch, [blank | row for row in rows])


async def try_again(tx: Transaction, repository_id: int, kind: str, object_ids: Collection[int]) -> None:
    """Have some fetched again, whatever became of them."""
    c = ci_fetch.c
    these = (c.repository_id == repository_id, c.kind == kind, c.object_id.in_(list(object_ids)))
    blank = {"state": State.WANTED.value, "tries": 0, "error": None, "due_at": None, "asked_at": tx.now}
    await tx.run(sa.update(ci_fetch).where(*these).values(blank))


async def begin_try(tx: Transaction, repository_id: int, kind: str, object_id: int) -> FetchRow | None:
    """Count a try and return the fetch; None where it is over."""
    done = await tx.run(BEGIN_TRY, _key(repository_id, kind, object_id))
    return await fetch(tx, repository_id, kind, object_id) if done.rowcount else None


async def settle(tx: Transaction, row: FetchRow, state: State, **values: Any) -> None:
    """Set the state of a fetch, and what goes with it."""
    done_at = tx.now if state in FINAL else None
    changed = {"error": None, "due_at": None, "done_at": done_at} | values | {"state": state.value}
    key = _key(row["repository_id"], row["kind"], row["object_id"])
    await tx.run(SETTLE, changed | key)


def _key(repository_id: int, kind: str, object_id: int) -> dict[str, object]:
    return {"of_repository": repository_id, "of_kind": kind, "of_object": object_id}
