"""GET /api/ci/artifacts/{owner}/{repo} and the page of storage: artifacts, and what fills a repository's storage."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from msgspec import Meta

from bot.core.errors import Rejected
from bot.core.escaping import web_url
from bot.core.json_fields import iso_time
from bot.evidence.collect import artifacts
from bot.evidence.collect.artifacts import ArtifactChoice
from bot.evidence.collect.tables import ArtifactRow, WorkflowDay
from bot.ingest import repositories
from bot.jobs import settings
from bot.jobs.collection import FetchState
from bot.pages import job_reads
from bot.web import addresses
from bot.web import openapi as op
from bot.web import parameters as declare
from bot.web.answers import Answer, RowAnswer, fill_struct, matching, one_of
from bot.web.blocks import Block, BlockLine
from bot.web.charts import chart, commits_of_days
from bot.web.openapi import DeclaredRefusal
from bot.web.parameters import REPO
from bot.web.view import Json, Page, View

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bot.db.transaction import Transaction
    from bot.evidence.collect.artifacts import ListedArtifact
    from bot.web.blocks import CommitSubject, JobSubject, PullSubject, RunSubject
    from bot.web.charts import Chart
    from bot.web.parameters import Query

SMALLEST_CHANGE = 0.01  # below one percent nothing is said
ARTIFACTS_SHOWN = 100  # unless ?limit= says otherwise
LONGEST_NAME = 500  # characters
NO_ARTIFACTS = DeclaredRefusal(404, "not_found", "nothing of that name or id may be shown")
SHA = declare.parsed(
    "sha",
    Annotated[str, matching(addresses.SHA)],
    "only of this commit, or its beginning",
    parse=addresses.commit,
    default=None,
)
NAME = declare.text("name", "only of this name", most=LONGEST_NAME)
KIND = declare.choice("kind", ["", *sorted(settings.KNOWN_KINDS)], "only of this kind")
LIMIT = declare.limit(ARTIFACTS_SHOWN)
BEFORE = declare.before([False])
DAY = 86_400_000  # milliseconds
WORKFLOWS = 100
DAYS = declare.days()
SECTION_SHOWN = 50  # artifacts of one section
SECTION_COUNTED = 1_000  # counted for it


class Artifact(RowAnswer, row=ArtifactRow, without=("repository_id",), frozen=True, kw_only=True):
    """An artifact of a run."""

    job_id: Annotated[int | None, Meta(description="null: it could not be attributed to a job")]
    name: Annotated[str, Meta(description="as the run chose it")]
    kind: Annotated[str, one_of(sorted(settings.KNOWN_KINDS))]
    trusted: Annotated[bool, Meta(description="of the repository's own run on a trusted branch")]
    state: Annotated[str, one_of([state.value for state in FetchState])]
    reason: Annotated[str, Meta(description="the state in words")]
    url: Annotated[str, Meta(description="GitHub's page to download it from")]


class Artifacts(Answer, frozen=True, kw_only=True):
    """Artifacts, newest first"""

    artifacts: list[Artifact]
    next: Annotated[str | None, Meta(description="the `before` of the following page")]


@dataclass(frozen=True, kw_only=True)
class ArtifactsOnPage:
    """Some of a repository's artifacts."""

    repo: str
    github: str
    artifacts: list[ListedArtifact]
    more: bool  # whether there are older ones


class StorageDay(RowAnswer, row=WorkflowDay, frozen=True, kw_only=True):
    """What one workflow left behind on one day."""

    day: Annotated[str, Meta(description="of creation, UTC", examples=["2026-01-31"])]


class Storage(Answer, frozen=True, kw_only=True):
    """What fills a repository's artifact storage, newest day first"""

    days: int
    storage: list[StorageDay]


class StorageShare(NamedTuple):
    """The artifacts of one workflow in the window."""

    workflow: str
    artifacts: int
    size: str
    share: float  # of all bytes, 0 to 1


@dataclass(frozen=True, kw_only=True)
class StorageOnPage:
    """The artifacts of a window of days."""

    repo: str
    days: int
    today: int  # days since 1970
    storage: list[WorkflowDay]
    has_grid: bool  # whether its commits have a page


def describe_change(base: int, size: int) -> str:
    """Describe how a size compares with its base; empty where it hardly differs."""
    share = size / base - 1 if base else 0.0
    if abs(share) < SMALLEST_CHANGE:
        return ""
    return f"{'grew' if share > 0 else 'shrank'} {abs(share):.0%} against the base".replace("%", " %")


def describe_artifact(artifact: ArtifactRow, *, changed: str = "") -> str:
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
    """Return GitHub's page where people download an artifact."""
    return f"{github}/{repo}/actions/runs/{artifact['run_id']}/artifacts/{artifact['id']}"


def artifact_answer(listed: ListedArtifact, repo: str, github: str) -> Artifact:
    """Return an artifact as it is sent."""
    url = page_url(github, repo, listed.artifact)
    return fill_struct(Artifact, listed.artifact, state=listed.state, reason=listed.reason, url=url)


def _run_id(text: str) -> int:
    number = addresses.number(text)
    if not number:
        raise Rejected(400, "invalid_parameter", "run_id must be one of GitHub's ids")
    return number


RUN_ID = declare.parsed("run_id", op.Number, "only of this run", parse=_run_id, default=None)


async def read_artifacts(query: Query) -> ArtifactsOnPage:
    """Read a repository's artifacts; raises Rejected 404."""
    repo, limit, position = query[REPO], query[LIMIT], query[BEFORE]
    choice = ArtifactChoice(
        same={"run_id": query[RUN_ID], "name": query[NAME] or None, "kind": query[KIND] or None},
        sha=query[SHA],
        before=int(position[0]) if position else None,
    )
    owners = await job_reads.visible_ids_of(query, repo)
    if not owners:
        raise NO_ARTIFACTS.because(f"nothing of {repo} may be shown")
    listed = await artifacts.find_artifacts(query.tx, owners, choice, limit=limit + 1)
    return ArtifactsOnPage(
        repo=repo,
        github=web_url(query.settings.github_api_url),
        artifacts=listed[:limit],
        more=len(listed) > limit,
    )


def answer_artifacts(page: ArtifactsOnPage) -> Artifacts:
    """Return the artifacts as they are sent."""
    last = page.artifacts[-1].artifact["id"] if page.more else None
    return Artifacts(
        artifacts=[artifact_answer(listed, page.repo, page.github) for listed in page.artifacts],
        next=None if last is None else addresses.following([last]),
    )


ARTIFACTS_VIEW = View(
    read=read_artifacts,
    parameters=(REPO, RUN_ID, SHA, NAME, KIND, LIMIT, BEFORE),
    json=Json(
        path="/api/ci/artifacts/{owner}/{repo}",
        answer=answer_artifacts,
        content=Artifacts,
        name="ciArtifacts",
        summary="Artifacts of a repository",
        topic=op.CI,
        refusals=(NO_ARTIFACTS,),
    ),
)


async def read_storage(query: Query) -> StorageOnPage:
    """Read the artifacts created in the window, expired or not. Raises Rejected 404."""
    tx, repo, days = query.tx, query[REPO], query[DAYS]
    owners = await job_reads.visible_ids_of(query, repo)
    if not owners:
        raise NO_ARTIFACTS.because(f"nothing of {repo} may be shown")
    since = tx.now - (days - 1 if query.for_page else days) * DAY
    days_read = await artifacts.storage_by_workflow(tx, owners, since=since)
    has_grid = query.settings.is_upstream(repo)
    return StorageOnPage(repo=repo, days=days, today=tx.now // DAY, storage=days_read, has_grid=has_grid)


def show_storage(page: StorageOnPage) -> dict[str, Any]:
    """Return what the page shows."""
    shares, days = _shares(page.storage), page.days
    return {
        "repo": page.repo,
        "days": days,
        "windows": addresses.windows(days),
        "size": size_in_words(sum(row["bytes"] for row in page.storage)),
        "artifacts": sum(row["artifacts"] for row in page.storage),
        "shares": shares[:WORKFLOWS],
        "more": max(len(shares) - WORKFLOWS, 0),
        "charts": _charts(page, range(page.today - days + 1, page.today + 1)),
    }


def answer_storage(page: StorageOnPage) -> Storage:
    """Return the JSON of storage, by day."""
    rows = [
        fill_struct(StorageDay, row, day=f"{datetime.fromtimestamp(row['day'] * 86_400, UTC):%Y-%m-%d}")
        for row in page.storage
    ]
    return Storage(days=page.days, storage=rows)


STORAGE_VIEW = View(
    read=read_storage,
    parameters=(REPO, DAYS),
    page=Page(path="/{owner}/{repo}/storage", template="storage.html", values=show_storage),
    json=Json(
        path="/api/ci/storage/{owner}/{repo}",
        answer=answer_storage,
        content=Storage,
        name="ciStorage",
        summary="What fills a repository's artifact storage",
        topic=op.CI,
        refusals=(NO_ARTIFACTS,),
        link=lambda page: {"repo": page.repo, "days": page.days},
    ),
)


async def pull_artifacts(tx: Transaction, subject: PullSubject) -> list[Block]:
    """Return the artifacts of the head on the page."""
    if subject.head_sha is None:
        return []
    return await _of_repo(tx, subject.repo, subject.github, ArtifactChoice(sha=subject.head_sha))


async def commit_artifacts(tx: Transaction, subject: CommitSubject) -> list[Block]:
    """Return the artifacts of a commit."""
    return await _of_repo(tx, subject.repo, subject.github, ArtifactChoice(sha=subject.sha))


async def run_artifacts(tx: Transaction, subject: RunSubject) -> list[Block]:
    """Return the artifacts of a run."""
    choice = ArtifactChoice(same={"run_id": subject.run_id})
    return await _blocks(tx, {subject.repository_id}, subject.repo, subject.github, choice)


async def job_artifacts(tx: Transaction, subject: JobSubject) -> list[Block]:
    """Return the artifacts of a job, and how reading them went."""
    choice = ArtifactChoice(same={"run_id": subject.run_id, "job_id": subject.job_id})
    return await _blocks(tx, {subject.repository_id}, subject.repo, subject.github, choice)


def _shares(days: Iterable[WorkflowDay]) -> list[StorageShare]:
    """Return the share of each workflow, the largest first."""
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for row in days:
        sums[row["workflow"]][0] += row["artifacts"]
        sums[row["workflow"]][1] += row["bytes"]
    whole = sum(size for _, size in sums.values()) or 1
    return [
        StorageShare(name, count, size_in_words(size), size / whole)
        for name, (count, size) in sorted(sums.items(), key=lambda workflow: (-workflow[1][1], workflow[0]))
    ]


def _charts(page: StorageOnPage, days: Sequence[int]) -> list[Chart]:
    sizes: dict[int, list[float]] = {day: [0, 0] for day in days}
    for row in page.storage:
        of_day = sizes.setdefault(row["day"], [0, 0])
        of_day[0] += row["bytes"]
        of_day[1] += row["artifacts"]
    labels = [f"{datetime.fromtimestamp(day * 86_400, UTC):%Y-%m-%d}" for day in days]
    links = commits_of_days(page.repo, labels) if page.has_grid else ()
    draw = partial(chart, labels=labels, links=links)
    return [
        draw("Uploaded", series=[("uploaded", [sizes[day][0] for day in days])], show=_day_words),
        draw("Artifacts", series=[("artifacts", [sizes[day][1] for day in days])], show="{:,.0f}".format),
    ]


def _day_words(size: float) -> str:
    return size_in_words(round(size))


async def _of_repo(tx: Transaction, repo: str, github: str, choice: ArtifactChoice) -> list[Block]:
    return await _blocks(tx, await repositories.read_ids(tx, repo), repo, github, choice)


async def _blocks(
    tx: Transaction, owners: set[int], repo: str, github: str, choice: ArtifactChoice
) -> list[Block]:
    all_listed = await artifacts.find_artifacts(tx, owners, choice, limit=SECTION_COUNTED)
    if not all_listed:
        return []
    shown = sorted(all_listed, key=lambda listed: -listed.artifact["size_in_bytes"])[:SECTION_SHOWN]
    bases = await artifacts.base_sizes(tx, [listed.artifact for listed in shown])
    lines = [_artifact_line(listed, repo, github, bases.get(listed.artifact["id"], 0)) for listed in shown]
    if len(all_listed) > len(shown):
        count = (
            f"{SECTION_COUNTED:,} or more" if len(all_listed) == SECTION_COUNTED else f"{len(all_listed):,}"
        )
        lines.append(BlockLine(text=f"the largest {len(shown)} of {count}"))
    size = size_in_words(sum(listed.artifact["size_in_bytes"] for listed in all_listed))
    return [Block(heading=f"Artifacts ({size})", lines=tuple(lines), last=True)]


def _artifact_line(listed: ListedArtifact, repo: str, github: str, base: int) -> BlockLine:
    artifact = listed.artifact
    changed = describe_change(base, artifact["size_in_bytes"])
    text = describe_artifact(artifact, changed=changed)
    unread = listed.state in {"refused", "broken", "too_large", "forbidden"}
    return BlockLine(
        text=f"{text} · {listed.reason}" if unread else text,
        url=None if artifact["expired"] else page_url(github, repo, artifact),
        tone="warn" if unread else None,
    )
