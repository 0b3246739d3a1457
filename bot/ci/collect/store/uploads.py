"""Statements about uploaded files, and the jobs that backends reported of the same runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from bot.ci.collect.job_names import FAILED
from bot.ci.collect.tables import UploadRow, ci_fetch, ci_upload
from bot.db.rows import select
from bot.db.statements import Statement
from bot.ingest import watched
from bot.oot.results.tables import oot_workflow_job

if TYPE_CHECKING:
    from collections.abc import Collection

    from bot.db.transaction import Transaction

REPORTS_MOST = 500  # of one run
UPLOAD, REPORTED, FETCH = ci_upload.c, oot_workflow_job.c, ci_fetch.c


async def find_upload(tx: Transaction, identifier: int) -> UploadRow | None:
    """Return an upload."""
    return await tx.fetch_first(select(UploadRow, ci_upload).where(UPLOAD.id == identifier))


async def bytes_since(tx: Transaction, backend_key: str, since: int) -> int:
    """Return how many bytes a backend has uploaded since a time."""
    query = sa.select(sa.func.coalesce(sa.func.sum(UPLOAD.size), 0)).where(
        UPLOAD.backend_key == backend_key, UPLOAD.received_at > since
    )
    return int((await tx.run(query)).scalar_one())


async def count_since(tx: Transaction, backend_key: str, since: int) -> int:
    """Return how many files a backend has uploaded since a time."""
    query = sa.select(sa.func.count()).where(UPLOAD.backend_key == backend_key, UPLOAD.received_at > since)
    return int((await tx.run(query)).scalar_one())


async def repository_of_backend(tx: Transaction, backend: str, claimed: str | None) -> int:
    """Return a backend's repository on GitHub; 0, which is private, where the name alone does not tell.

    The id in a token is GitHub's only if it is one of those that had this name: other issuers count their own.
    """
    known = await watched.ids(tx, backend)
    if claimed in {str(one) for one in known}:
        return int(claimed or 0)
    return next(iter(known)) if len(known) == 1 else 0


async def job_failed(tx: Transaction, upload: UploadRow) -> bool | None:
    """Return whether the job of an upload failed as its backend reported it, None where it has not said so yet.

    Where no job of that name is reported, all of the run decide.
    """
    dispatched = REPORTED.dispatch_id == upload["dispatch_id"]
    own = sa.and_(
        REPORTED.dispatch_id.is_(None),
        sa.func.lower(REPORTED.downstream_repo) == upload["backend"].lower(),
        REPORTED.delivery_id == upload["commit_sha"],
    )
    same_run = sa.select(
        REPORTED.workflow_name, REPORTED.job_name, REPORTED.status, REPORTED.conclusion
    ).where(
        dispatched if upload["dispatch_id"] else own,
        REPORTED.run_id == upload["run_id"],
        REPORTED.run_attempt == upload["run_attempt"],
    )
    reported = (await tx.run(same_run.limit(REPORTS_MOST))).all()
    name = (upload["workflow"], upload["job"])
    named = [one for one in reported if (one.workflow_name, one.job_name) == name] or reported
    if any(one.conclusion in FAILED for one in named):
        return True
    ended = named and all(one.status == "completed" for one in named)
    return False if ended else None


OPEN = sa.and_(
    FETCH.repository_id == UPLOAD.repository_id, FETCH.kind == "upload", FETCH.object_id == UPLOAD.id,
    FETCH.state == "wanted",
)  # fmt: skip
WAITING = Statement(
    sa.select(UPLOAD.id)
    .join(ci_fetch, OPEN)
    .where(UPLOAD.dispatch_id.in_(sa.bindparam("dispatches", expanding=True)))
    .order_by(UPLOAD.id)
)


async def uploads_waiting_for(tx: Transaction, dispatch_ids: Collection[str]) -> list[int]:
    """Return the uploads for some dispatches that have not been read."""
    return list((await tx.run(WAITING, {"dispatches": sorted(dispatch_ids)})).scalars())


async def record_upload(tx: Transaction, row: dict[str, Any]) -> int:
    """Store an upload; returns its id."""
    return int((await tx.run(sa.insert(ci_upload).values(row).returning(UPLOAD.id))).scalar_one())
