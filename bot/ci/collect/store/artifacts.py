"""Statements about artifacts: what is known of them, how far their fetching came, how much they are by day."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import sqlalchemy as sa

from bot.ci.collect.states import State, reason
from bot.ci.collect.tables import ArtifactRow, WorkflowDay, ci_artifact, ci_fetch, ci_storage_day
from bot.db.rows import fields, select
from bot.ingest import watched

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from bot.db.transaction import Transaction

DAY = 86_400_000  # milliseconds
INDEXED_ONLY = "indexed only: nothing reads this kind"
MOST_COMPARED = 30  # names looked up on the base for one page
CHANGING = ("job_id", "kind", "size_in_bytes", "digest", "updated_at", "expires_at", "expired", "flags")
A, F, S = ci_artifact.c, ci_fetch.c, ci_storage_day.c
LISTED = (
    select(ArtifactRow, ci_artifact)
    .add_columns(F.state, F.error, F.tries)
    .join_from(
        ci_artifact,
        ci_fetch,
        (F.repository_id == A.repository_id) & (F.kind == "artifact") & (F.object_id == A.id),
        isouter=True,
    )
    .order_by(A.id.desc())
)


class ListedArtifact(NamedTuple):
    """An artifact with how far its fetching has come."""

    artifact: ArtifactRow
    state: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Which artifacts of a repository are wanted."""

    same: Mapping[str, int | str | None] = field(default_factory=dict)  # by column, such as run_id; None: any
    sha: str | None = None  # or its beginning
    before: int | None = None  # an id


async def find_artifact(tx: Transaction, repo: str, artifact_id: int) -> ArtifactRow | None:
    """Return an artifact by any name of its repository."""
    owners = sorted(await watched.ids(tx, repo))
    query = select(ArtifactRow, ci_artifact).where(A.repository_id.in_(owners), A.id == artifact_id)
    return await tx.fetch_first(query)


async def record_artifacts(tx: Transaction, rows: Sequence[ArtifactRow], *, workflow: str) -> int:
    """Insert or update artifacts of one repository; returns how many are new. Those alone count as storage."""
    if not rows:
        return 0
    query = sa.select(A.id).where(
        A.repository_id == rows[0]["repository_id"], A.id.in_([row["id"] for row in rows])
    )
    known = set((await tx.run(query)).scalars())
    await tx.upsert(ci_artifact, rows, replaced=CHANGING)
    tx.note_changed("ci_artifact", rows)
    new = [row for row in rows if row["id"] not in known]
    for row in new:
        await _count(tx, row, workflow)
    return len(new)


async def _count(tx: Transaction, row: ArtifactRow, workflow: str) -> None:
    counted = {
        "repository_id": row["repository_id"],
        "day": (row["created_at"] or tx.now) // DAY,
        "workflow": workflow,
        "artifacts": 1,
        "bytes": row["size_in_bytes"],
    }
    await tx.upsert(ci_storage_day, [counted], added=("artifacts", "bytes"))


async def list_artifacts(
    tx: Transaction, repositories: Collection[int], choice: Choice, *, limit: int
) -> list[ListedArtifact]:
    """Return artifacts, newest first."""
    query = LISTED.where(A.repository_id.in_(sorted(repositories)), *_conditions(choice)).limit(limit)
    found = []
    for row in await tx.rows(query):
        state, error, tries = (row.pop(name) for name in ("state", "error", "tries"))
        words = INDEXED_ONLY if state is None else reason(state, error, tries=tries or 0)
        artifact: ArtifactRow = {name: row[name] for name in fields(ArtifactRow)}  # type: ignore[assignment]
        found.append(ListedArtifact(artifact, state or State.SKIPPED.value, words))
    return found


def _conditions(choice: Choice) -> list[sa.ColumnElement[bool]]:
    found = [A[name] == value for name, value in choice.same.items() if value is not None]
    if choice.sha is not None:
        found += [choice.sha <= A.head_sha, A.head_sha < choice.sha + "g"]  # the range of its beginning
    if choice.before is not None:
        found.append(A.id < choice.before)
    return found


async def storage_by_workflow(
    tx: Transaction, repositories: Collection[int], *, since: int
) -> list[WorkflowDay]:
    """Return what was left behind by day and workflow, from a time on; newest first."""
    count, size = (sa.cast(sa.func.sum(column), sa.BigInteger) for column in (S.artifacts, S.bytes))
    query = (
        select(WorkflowDay, ci_storage_day, artifacts=count, bytes=size)
        .where(S.repository_id.in_(sorted(repositories)), S.day >= since // DAY)
        .group_by(S.day, S.workflow)
        .order_by(S.day.desc(), size.desc(), S.workflow)
    )
    return await tx.fetch(query)


async def base_sizes(tx: Transaction, artifacts: Sequence[ArtifactRow]) -> dict[int, int]:
    """Return by artifact the size of the newest of its name on a trusted run before."""
    found = {}
    for artifact in artifacts[:MOST_COMPARED]:
        query = sa.select(A.size_in_bytes).where(
            A.repository_id == artifact["repository_id"],
            A.name == artifact["name"],
            A.id < artifact["id"],
            A.trusted,
            A.head_sha != artifact["head_sha"],
        )
        if base := (await tx.run(query.order_by(A.id.desc()).limit(1))).scalar():
            found[artifact["id"]] = base
    return found
