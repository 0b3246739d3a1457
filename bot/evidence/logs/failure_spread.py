"""Where a failure happens, and since which trusted commit. Public repositories only."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple, TypedDict

import sqlalchemy as sa

from bot.db.rows import Big, Json, Text, select
from bot.evidence.logs import failed_jobs, known_failures
from bot.evidence.logs.failed_jobs import JOB, LOG, LOGS, NAME, REPO, VERDICT, WORKFLOW, JobName
from bot.evidence.logs.tables import FIRST, PUBLIC, LogHead, LogKey, VerdictAt, ci_log, ci_verdict
from bot.ingest import repositories
from bot.ingest.tables import records
from bot.jobs import branch_history, job_names
from bot.jobs.branch_history import FailedJob

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.core.settings import Settings
    from bot.db.rows import TypedSelect
    from bot.db.transaction import Transaction

SAMPLES_MOST = 1_000  # newest jobs that are counted
GROUPS = 15  # shown of each kind
FIRSTS = 200  # oldest trusted jobs that are looked at
BEGINNINGS = 5


class Sample(LogKey, JobName, LogHead, VerdictAt):
    """A job that had the failure."""

    repo: Text
    labels: Json[list[str]] | None
    line: Text | None
    line_num: Big | None


class SampleGroup(TypedDict):
    """Jobs that had the failure and share a name, a label or a repository."""

    name: str
    jobs: int
    trusted_jobs: int


class Spread(NamedTuple):
    """How the jobs with a failure are spread."""

    by_job: list[SampleGroup]
    by_label: list[SampleGroup]
    by_repo: list[SampleGroup]


class Commits(TypedDict):
    """Two commits between which something changed."""

    last_good: str
    first_bad: str


class Beginning(Commits):
    """The two trusted commits between which a job began to fail."""

    repo: str  # of the job
    job: str
    upstream: str  # of the commits
    branch: str
    gap: bool  # whether commits between the two have no result


async def newest_samples(tx: Transaction, signature: str) -> list[Sample]:
    """Return the newest jobs with a failure, of repositories that are public now."""
    query = _failed_that_way(signature).order_by(VERDICT.at.desc(), VERDICT.job_id.desc())
    return await tx.fetch(query.limit(SAMPLES_MOST))


def spread_of_samples(samples: Sequence[Sample]) -> Spread:
    """Count jobs by name (without shard and runner), by runner labels and by repository."""
    names = [
        job_names.parse_name(sample["workflow_name"], sample["name"] or "job").shard_free
        for sample in samples
    ]
    labels = [", ".join(sample["labels"] or []) or "not known" for sample in samples]
    repos = [sample["repo"] for sample in samples]
    return Spread(_groups(samples, names), _groups(samples, labels), _groups(samples, repos))


async def find_beginnings(tx: Transaction, settings: Settings, signature: str) -> list[Beginning]:
    """Return since when jobs have a failure on trusted branches, where every result before it passed."""
    query = _failed_that_way(signature).where(VERDICT.trusted).order_by(VERDICT.at, VERDICT.job_id)
    firsts: dict[tuple[str, str], Sample] = {}
    for sample in await tx.fetch(query.limit(FIRSTS)):
        name = job_names.parse_name(sample["workflow_name"], sample["name"] or "").shard_free
        firsts.setdefault((sample["repo"], name), sample)
    beginnings = [
        await _beginning_of(tx, settings, sample, name)
        for (_, name), sample in list(firsts.items())[:BEGINNINGS]
    ]
    return [beginning for beginning in beginnings if beginning]


async def _beginning_of(tx: Transaction, settings: Settings, first: Sample, name: str) -> Beginning | None:
    failed = await failed_jobs.failure_of_job(tx, first["repository_id"], first["job_id"])
    head = await known_failures.upstream_head(tx, failed) if failed else None
    if failed is None or head is None:
        return None
    is_upstreams = first["repository_id"] in await repositories.read_ids(tx, head.repo)
    failed_job = FailedJob(first["job_id"]) if is_upstreams else FailedJob(None, failed["run_id"], name)
    place = await branch_history.find_beginning(tx, settings, head.repo, head.sha, failed_job)
    if place is None:
        return None
    branch, began = place
    return {
        "repo": first["repo"],
        "job": name,
        "upstream": head.repo,
        "branch": branch.name,
        "last_good": began.last_good,
        "first_bad": began.first_bad,
        "gap": began.gap,
    }


def _groups(samples: Sequence[Sample], names: Sequence[str]) -> list[SampleGroup]:
    jobs = Counter(names)
    trusted = Counter(name for sample, name in zip(samples, names, strict=True) if sample["trusted"])
    return [{"name": name, "jobs": n, "trusted_jobs": trusted[name]} for name, n in jobs.most_common(GROUPS)]


def _failed_that_way(signature: str) -> TypedSelect[Sample]:
    repository = records["repository"].c
    public = sa.exists().where(
        repository.repository_id == VERDICT.repository_id, repository.private.is_(False)
    )
    of_log = sa.and_(VERDICT.repository_id == LOG.repository_id, VERDICT.job_id == LOG.job_id)
    computed = {"repo": REPO, "name": NAME, "workflow_name": WORKFLOW, "labels": JOB.labels}
    query = select(Sample, ci_verdict, ci_log, **computed).select_from(LOGS.join(ci_verdict, of_log))
    return query.where(
        FIRST, VERDICT.signature == signature, VERDICT.family == PUBLIC, public, REPO.is_not(None)
    )
