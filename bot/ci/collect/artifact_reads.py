"""Reading the index of artifacts: lists with state, storage by day, the same name on the base."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict, cast

import sqlalchemy as sa

from bot.ci.collect.rows import ArtifactRow
from bot.ci.collect.states import State, reason
from bot.ci.collect.tables import ci_artifact, ci_fetch, ci_storage_day
from bot.core.json_fields import iso_time

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from bot.db.transaction import Transaction

MOST_COMPARED = 30  # names looked up on the base for one page
SMALLEST_CHANGE = 0.01  # below one percent nothing is said
INDEXED_ONLY = "indexed only: nothing reads this kind"
A, F = ci_artifact.c, ci_fetch.c


class ListedArtifact(TypedDict):
    """An artifact with how far its fetching has come."""

    artifact: ArtifactRow
    state: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Which artifacts of a repository are wanted."""

    run_id: int | None = None
    job_id: int | None = None
    sha: str | None = None  # or its beginning
    name: str | None = None
    kind: str | None = None
    before: int | None = None  # an id


class StorageRow(TypedDict):
    """What a workflow left behind on one day."""

    day: int  # days since 1970
    workflow: str
    artifacts: int
    bytes: int


async def listed(
    tx: Transaction, repositories: Collection[int], choice: Choice, *, limit: int
) -> list[ListedArtifact]:
    """Return artifacts, newest first."""
    query = (
        sa.select(ci_artifact, F.state, F.error, F.tries)
        .join_from(
            ci_artifact,
            ci_fetch,
            (F.repository_id == A.repository_id) & (F.kind == "artifact") & (F.object_id == A.id),
            isouter=True,
        )
        .where(A.repository_id.in_(sorted(repositories)), *_conditions(choice))
        .order_by(A.id.desc())
        .limit(limit)
    )
    found = []
    for row in await tx.rows(query):
        state, error, tries = (row.pop(name) for name in ("state", "error", "tries"))
        words = INDEXED_ONLY if state is None else reason(state, error, tries=tries or 0)
        artifact = cast("ArtifactRow", row)
        found.append(ListedArtifact(artifact=artifact, state=state or State.SKIPPED.value, reason=words))
    return found


def _conditions(choice: Choice) -> list[sa.ColumnElement[bool]]:
    found = []
    if choice.run_id is not None:
        found.append(A.run_id == choice.run_id)
    if choice.job_id is not None:
        found.append(A.job_id == choice.job_id)
    if choice.sha is not None:
        found += [choice.sha <= A.head_sha, A.head_sha < choice.sha + "g"]  # the range of its beginning
    if choice.name is not None:
        found.append(A.name == choice.name)
    if choice.kind is not None:
        found.append(A.kind == choice.kind)
    if choice.before is not None:
        found.append(A.id < choice.before)
    return found


async def storage(tx: Transaction, repositories: Collection[int], *, since: int) -> list[StorageRow]:
    """Return what was left behind by day and workflow, from a time on; newest first."""
    c = ci_storage_day.c
    query = (
        sa.select(
            c.day,
            c.workflow,
            sa.func.sum(c.artifacts).label("artifacts"),
            sa.func.sum(c.bytes).label("bytes"),
        )
        .where(c.repository_id.in_(sorted(repositories)), c.day >= since // 86_400_000)
        .group_by(c.day, c.workflow)
        .order_by(c.day.desc(), sa.desc("bytes"), c.workflow)
    )
    return [
        StorageRow(
            day=row["day"], workflow=row["workflow"], artifacts=int(row["artifacts"]), bytes=int(row["bytes"])
        )
        for row in await tx.rows(query)
    ]


async def changes(tx: Transaction, artifacts: Sequence[ArtifactRow]) -> dict[int, str]:
    """Return in words how the size of artifacts compares with the newest of that name on a trusted run before."""
    found = {}
    for artifact in artifacts[:MOST_COMPARED]:
        query = (
            sa.select(A.size_in_bytes)
            .where(
                A.repository_id == artifact["repository_id"],
                A.name == artifact["name"],
                A.id < artifact["id"],
                A.trusted,
                A.head_sha != artifact["head_sha"],
            )
            .order_by(A.id.desc())
            .limit(1)
        )
        base = (await tx.run(query)).scalar()
        if base and (words := change(base, artifact["size_in_bytes"])):
            found[artifact["id"]] = words
    return found


def change(base: int, size: int) -> str:
    """Return how a size compares with its base, empty where it hardly differs."""
    share = size / base - 1 if base else 0.0
    if abs(share) < SMALLEST_CHANGE:
        return ""
    return f"{'grew' if share > 0 else 'shrank'} {abs(share):.0%} against the base".replace("%", " %")


def words(artifact: ArtifactRow, *, changed: str = "") -> str:
    """Return an artifact in one line."""
    parts = [artifact["name"], size_in_words(artifact["size_in_bytes"])]
    if artifact["expired"]:
        parts.append("expired")
    elif artifact["expires_at"] is not None:
        parts.append(f"until {iso_time(artifact['expires_at'])[:10]}")
    return " · ".join([*parts, *([changed] if changed else [])])


def size_in_words(size: int) -> str:
    """Return a size as people read it."""
    for unit, name in ((1_000_000_000, "GB"), (1_000_000, "MB"), (1_000, "kB")):
        if size >= unit:
            return f"{size / unit:,.1f} {name}"
    return f"{size} bytes"


def page_url(github: str, repo: str, artifact: ArtifactRow) -> str:
    """Return GitHub's page from which a person downloads an artifact."""
    return f"{github}/{repo}/actions/runs/{artifact['run_id']}/artifacts/{artifact['id']}"


def total(artifacts: Iterable[ArtifactRow]) -> int:
    """Return how large some artifacts are together."""
    return sum(artifact["size_in_bytes"] for artifact in artifacts)
