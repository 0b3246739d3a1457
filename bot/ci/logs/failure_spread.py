"""Where a failure happens, and since which trusted commit. Public repositories only."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple, TypedDict

import sqlalchemy as sa

from bot.ci.collect import job_names
from bot.ci.collect.job_names import FAILED
from bot.ci.logs import baseline_rows, failed_jobs
from bot.ci.logs.baseline_rows import COMMIT, Base
from bot.ci.logs.failed_jobs import JOB, LOG, LOGS, NAME, REPO, VERDICT, WORKFLOW
from bot.ci.logs.rows import PUBLIC
from bot.ci.logs.tables import FIRST, ci_verdict
from bot.ingest import watched
from bot.ingest.tables import records

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from bot.ci.logs.baseline_rows import Head, Past
    from bot.core.settings import Settings
    from bot.db.transaction import Transaction

MOST = 1_000  # newest jobs that are counted
GROUPS = 15  # shown of each kind
FIRSTS = 200  # oldest trusted jobs that are looked at
BEGINNINGS = 5
HISTORY = 10  # commits before the first failure that have to be free of it


class Sample(TypedDict):
    """A job that failed that way."""

    repo: str
    repository_id: int
    job_id: int
    name: str | None
    workflow_name: str | None
    labels: list[str] | None
    head_sha: str
    line: str | None
    line_num: int | None
    trusted: bool
    at: int


class Group(TypedDict):
    """Jobs that failed that way and have something in common."""

    name: str
    jobs: int
    trusted_jobs: int


class Spread(NamedTuple):
    """How the jobs are spread."""

    by_job: list[Group]
    by_label: list[Group]
    by_repo: list[Group]


class Beginning(TypedDict):
    """Between which two trusted commits a failure of a job began."""

    repo: str  # of the job
    job: str
    upstream: str  # of the commits
    branch: str
    last_good: str
    first_bad: str


async def newest(tx: Transaction, signature: str) -> list[Sample]:
    """Return jobs that failed that way, the newest first, of repositories that are public now."""
    query = _jobs(signature).order_by(VERDICT.at.desc(), VERDICT.job_id.desc())
    return await tx.rows_as(Sample, query.limit(MOST))


def spread(samples: Sequence[Sample]) -> Spread:
    """Return how jobs are spread over names (without shard and runner), runner labels and repositories."""
    names = [job_names.parse_name(one["workflow_name"], one["name"] or "job").shard_free for one in samples]
    labels = [", ".join(one["labels"] or []) or "not known" for one in samples]
    repos = [one["repo"] for one in samples]
    return Spread(_groups(samples, names), _groups(samples, labels), _groups(samples, repos))


async def beginnings(tx: Transaction, settings: Settings, signature: str) -> list[Beginning]:
    """Return since when jobs fail that way on trusted branches, where every result before it passed."""
    query = _jobs(signature).where(VERDICT.trusted).order_by(VERDICT.at, VERDICT.job_id)
    firsts: dict[tuple[str, str], Sample] = {}
    for one in await tx.rows_as(Sample, query.limit(FIRSTS)):
        name = job_names.parse_name(one["workflow_name"], one["name"] or "").shard_free
        firsts.setdefault((one["repo"], name), one)
    found = [await _began(tx, settings, one, name) for (_, name), one in list(firsts.items())[:BEGINNINGS]]
    return [one for one in found if one]


async def _began(tx: Transaction, settings: Settings, first: Sample, name: str) -> Beginning | None:
    failed = await failed_jobs.of_job(tx, first["repository_id"], first["job_id"])
    head = await baseline_rows.head_of(tx, failed) if failed else None
    if head is None:
        return None
    ids = await watched.ids(tx, head.repo)
    line = await _line(tx, ids, head.sha)
    if line is None:
        return None
    branch, at = line
    shas = await baseline_rows.commits(tx, ids, branch, until=at, limit=HISTORY, but=head.sha)
    base = Base(frozenset(ids), branch, frozenset(), tuple(shas))
    last_good = _last_good(await _pasts(tx, settings, head, base, first), base.shas, name)
    if last_good is None:
        return None
    return {
        "repo": first["repo"],
        "job": name,
        "upstream": head.repo,
        "branch": branch,
        "last_good": last_good,
        "first_bad": head.sha,
    }


async def _pasts(tx: Transaction, settings: Settings, head: Head, base: Base, first: Sample) -> list[Past]:
    if first["repository_id"] not in base.ids:
        return await baseline_rows.of_backends(tx, head.repo, {first["repo"].lower()}, base.shas)
    parsed = job_names.parse_name(first["workflow_name"], first["name"] or "")
    return await baseline_rows.of_upstream(tx, settings, base, [(parsed.workflow, parsed.job)])


def _last_good(pasts: Sequence[Past], shas: Sequence[str], name: str) -> str | None:
    """Return the newest commit on which the job passed; None where it failed on any, or none has a result."""
    mine = [past for past in pasts if past.name == name]
    if any(past.conclusion in FAILED for past in mine):
        return None
    passed = {past.sha for past in mine if past.conclusion == "success"}
    return next((sha for sha in shas if sha in passed), None)


async def _line(tx: Transaction, ids: Collection[int], sha: str) -> tuple[str, int] | None:
    """Return a branch that a commit is on, and its time there."""
    query = sa.select(COMMIT.branch, COMMIT.at).where(
        COMMIT.sha == sha, COMMIT.repository_id.in_(sorted(ids)), sa.not_(COMMIT.gone)
    )
    row = await tx.row(query.order_by(COMMIT.branch).limit(1))
    return (row["branch"], row["at"]) if row else None


def _groups(samples: Sequence[Sample], names: Sequence[str]) -> list[Group]:
    jobs = Counter(names)
    trusted = Counter(name for one, name in zip(samples, names, strict=True) if one["trusted"])
    return [{"name": name, "jobs": n, "trusted_jobs": trusted[name]} for name, n in jobs.most_common(GROUPS)]


def _jobs(signature: str) -> sa.Select[tuple[str, int, int, str, str, list[str], str, str, int, bool, int]]:
    repository = records["repository"].c
    public = sa.exists().where(
        repository.repository_id == VERDICT.repository_id, repository.private.is_(False)
    )
    of_log = sa.and_(VERDICT.repository_id == LOG.repository_id, VERDICT.job_id == LOG.job_id)
    query = sa.select(
        REPO, VERDICT.repository_id, VERDICT.job_id, NAME, WORKFLOW, JOB.labels, LOG.head_sha, VERDICT.line,
        VERDICT.line_num, VERDICT.trusted, VERDICT.at,
    ).select_from(LOGS.join(ci_verdict, of_log))  # fmt: skip
    return query.where(
        FIRST, VERDICT.signature == signature, VERDICT.family == PUBLIC, public, REPO.is_not(None)
    )
