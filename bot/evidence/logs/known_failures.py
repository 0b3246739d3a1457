"""Whether a pull request's failure is known: the same job on trusted commits, the same failure elsewhere.

It explains a failure and makes nothing green. Where something is missing, nothing is said. Upstream's own
jobs count where their run is trusted; a backend's where it reported the run for a trusted commit. For the page of
a failure: where it happens, and since which trusted commit; of public repositories only.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple, TypedDict

import sqlalchemy as sa

from bot.db.rows import Big, Json, Text, select
from bot.evidence.logs import failed_jobs, failure_costs
from bot.evidence.logs.failed_jobs import (
    JOB,
    LOG,
    LOGS,
    NAME,
    REPO,
    REPORTED,
    VERDICT,
    WORKFLOW,
    JobName,
    run_keys,
)
from bot.evidence.logs.failure_costs import UNNAMED
from bot.evidence.logs.tables import FIRST, PUBLIC, LogHead, LogKey, VerdictAt, ci_log, ci_verdict
from bot.ingest import repositories
from bot.ingest.record_rows import WorkflowRunRow
from bot.ingest.tables import records
from bot.jobs import branch_history, job_names
from bot.jobs import runs as job_runs
from bot.jobs.cells import CONCLUSIONS
from bot.jobs.job_names import FAILED
from bot.jobs.runs import find_merge_target
from bot.jobs.tables import branch_commit, ci_cell, ci_column

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from bot.core.settings import Settings
    from bot.db.rows import TypedSelect
    from bot.db.transaction import Transaction
    from bot.evidence.logs.failed_jobs import FailedJob
    from bot.web.blocks import Tone

PULLS = 2  # other pull requests with the same failure, from which on it is hardly the change
JobKey = tuple[int, int]  # repository and id
NEWEST_HEADS = 3  # newest commits of the branch, at the time of the failure
JOBS_MOST = 3_000  # of one comparison
RUNS_MOST = 500  # reported ones
SAMPLES_MOST = 1_000  # newest jobs that are counted
GROUPS = 15  # shown of each kind
FIRSTS = 200  # oldest trusted jobs that are looked at
BEGINNINGS = 5
RUN, COMMIT = records["workflow_run"].c, branch_commit.c
CELL, COLUMN = ci_cell.c, ci_column.c


class Judgement(NamedTuple):
    """What is known of a failure, with what shows it."""

    word: str
    why: str
    url: str
    tone: Tone

    @property
    def text(self) -> str:
        """The word and its reason in one line."""
        return f"{self.word}: {self.why}"


class UpstreamHead(NamedTuple):
    """A commit of upstream that jobs failed on."""

    repo: str
    sha: str


class PastResult(NamedTuple):
    """A job on a trusted commit."""

    repo: str
    job: str  # without shard and runner
    sha: str  # upstream's commit
    key: tuple[int, int]  # of the job: repository and id
    conclusion: str | None  # None: it has not ended


class Baseline(NamedTuple):
    """What a head is compared with."""

    ids: frozenset[int]  # of upstream's repository
    branch: str
    merged_into: frozenset[str]  # its merge base, and the base's head when it was pushed
    shas: tuple[str, ...]  # these, then the newest commits of the branch


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


async def judge_failures(
    tx: Transaction, settings: Settings, head: UpstreamHead, failed: Sequence[FailedJob]
) -> dict[JobKey, Judgement]:
    """Return what is known of the failures on a head, except for those on trusted branches."""
    judged = [job for job in failed if not job["trusted"] and job["rule"] is not None]
    if not judged:
        return {}
    ids = await repositories.read_ids(tx, head.repo)
    at = max(job["at"] for job in judged)
    base = await find_baseline(tx, settings, head, ids, at=at)
    pasts = await _past_results(tx, settings, head, base, judged)
    failures = {past.key for past in pasts if past.conclusion in FAILED}
    captures = await captures_of_jobs(tx, failures | {_key_of_job(job) for job in judged})
    words = {}
    for job in judged:
        same = [
            past
            for past in pasts
            if past.repo.lower() == job["repo"].lower() and past.job == _shard_free_name(job)
        ]
        word = (
            _same_failure(job, same, base, captures)
            or await _fails_elsewhere(tx, job)
            or _passes_on_base(job, same, base)
        )
        if word:
            words[_key_of_job(job)] = word
    return words


async def _past_results(
    tx: Transaction, settings: Settings, head: UpstreamHead, base: Baseline, judged: Sequence[FailedJob]
) -> list[PastResult]:
    own = [job for job in judged if job["repository_id"] in base.ids]
    names = [job_names.parse_name(job["workflow_name"], job["name"] or "") for job in own]
    backends = {job["repo"].lower() for job in judged if job["repository_id"] not in base.ids}
    return [
        *await jobs_of_upstream(tx, settings, base, {(name.workflow, name.job) for name in names}),
        *await jobs_of_backends(tx, head.repo, backends, base.shas),
    ]


def _same_failure(
    job: FailedJob, same: Sequence[PastResult], base: Baseline, captures: dict[JobKey, list[tuple[str, str]]]
) -> Judgement | None:
    """Judge a job known if it failed on a trusted commit with all the same captures."""
    mine = {capture for capture in captures.get(_key_of_job(job), ()) if capture[0] == job["rule"]}
    for past in sorted(same, key=lambda past: (base.shas.index(past.sha), -past.key[1])):
        theirs = captures.get(past.key, ())
        if past.conclusion in FAILED and mine and mine <= set(theirs):
            why = f"the same job failed with the same captures on {_commit_words(base, past.sha)}"
            return Judgement("known", why, f"/{past.repo}/job/{past.key[1]}", "warn")
    return None


def _passes_on_base(job: FailedJob, same: Sequence[PastResult], base: Baseline) -> Judgement | None:
    """Judge a failure new if the job with all its shards passed on a trusted commit and failed on none."""
    if job["kind"] in UNNAMED or any(past.conclusion in FAILED for past in same):
        return None
    for sha in base.shas:
        there = [past for past in same if past.sha == sha]
        if there and all(past.conclusion == "success" for past in there):
            return Judgement(
                "new",
                f"the same job passes on {_commit_words(base, sha)}",
                f"/{there[0].repo}/job/{there[0].key[1]}",
                "bad",
            )
    return None


async def _fails_elsewhere(tx: Transaction, job: FailedJob) -> Judgement | None:
    """Judge a failure flaky if other pull requests had it within a day, and no trusted branch ever."""
    if job["kind"] in UNNAMED or not job["signature"]:
        return None
    others, trusted = await failure_costs.count_alike(tx, job)
    if others < PULLS or trusted:
        return None
    where = f"on {others} other pull requests within a day, on no trusted branch"
    return Judgement(
        "likely flaky or infrastructure", f"the same failure {where}", f"/failures/{job['signature']}", "warn"
    )


def _commit_words(base: Baseline, sha: str) -> str:
    return f"{'its base' if sha in base.merged_into else base.branch} at {sha[:12]}"


def _shard_free_name(job: FailedJob) -> str:
    return job_names.parse_name(job["workflow_name"], job["name"] or "").shard_free


def _key_of_job(job: FailedJob) -> JobKey:
    return job["repository_id"], job["job_id"]


async def upstream_head(tx: Transaction, failed: FailedJob) -> UpstreamHead | None:
    """Return the commit of upstream that a job is about: its own, or the one that its backend reported.

    None where that is of another repository that is not public: its commits are nothing to show with the job.
    """
    query = sa.select(REPORTED.upstream_repo, REPORTED.head_sha).where(
        REPORTED.run_id == failed["run_id"],
        REPORTED.run_attempt == failed["run_attempt"],
        sa.func.lower(REPORTED.downstream_repo) == failed["repo"].lower(),
    )
    if row := await tx.row(query.limit(1)):
        shown = row["head_sha"] and await _is_public(tx, row["upstream_repo"])
        return UpstreamHead(row["upstream_repo"], row["head_sha"]) if shown else None
    of_log = sa.select(LOG.head_sha).where(
        LOG.repository_id == failed["repository_id"], LOG.job_id == failed["job_id"]
    )
    sha = (await tx.run(of_log)).scalar()
    return UpstreamHead(failed["repo"], sha) if sha else None


async def _is_public(tx: Transaction, repo: str) -> bool:
    ids = await repositories.read_ids(tx, repo)
    return bool(ids) and all(
        [(await job_runs.repository_facts(tx, repository_id)).private is False for repository_id in ids]
    )


async def find_baseline(
    tx: Transaction, settings: Settings, head: UpstreamHead, ids: set[int], *, at: int
) -> Baseline:
    """Return the trusted commits to compare a head with at a time; `ids` are those of its repository."""
    branch, bases = await find_merge_target(tx, settings, head.repo, ids, head.sha)
    newest = await commits_of_branch(tx, ids, branch, until=at, limit=NEWEST_HEADS)
    return Baseline(frozenset(ids), branch, bases, tuple(dict.fromkeys([*sorted(bases), *newest])))


async def commits_of_branch(
    tx: Transaction, ids: Collection[int], branch: str, *, until: int, limit: int
) -> list[str]:
    """Return commits of a branch, the newest first; `until` is a time."""
    query = sa.select(COMMIT.sha).where(
        COMMIT.repository_id.in_(sorted(ids)),
        COMMIT.branch == branch,
        COMMIT.at <= until,
        sa.not_(COMMIT.gone),
    )
    return list((await tx.run(query.order_by(COMMIT.at.desc(), COMMIT.sha).limit(limit))).scalars())


async def jobs_of_upstream(
    tx: Transaction, settings: Settings, base: Baseline, names: Iterable[tuple[str, str]]
) -> list[PastResult]:
    """Return upstream's jobs on trusted commits, by names of workflow and job without shard."""
    pairs = sorted(set(names))
    if not base.shas or not pairs:
        return []
    same = sa.and_(COLUMN.id == CELL.column_id, COLUMN.repository_id == CELL.repository_id)
    of_job = sa.and_(JOB.repository_id == CELL.repository_id, JOB.id == CELL.job_id)
    query = (
        sa.select(JOB.repo, COLUMN.workflow, COLUMN.job, CELL.head_sha, CELL.repository_id, CELL.job_id,
                  CELL.conclusion, CELL.run_id, CELL.attempt)
        .select_from(ci_cell.join(ci_column, same).join(records["workflow_job"], of_job))
        .where(
            CELL.repository_id.in_(sorted(base.ids)),
            CELL.head_sha.in_(base.shas),
            tx.among((COLUMN.workflow, COLUMN.job), pairs),
        )
        .limit(JOBS_MOST)
    )  # fmt: skip
    rows = await tx.rows(query)
    trusted = await _trusted_runs(tx, settings, {(row["run_id"], row["attempt"]) for row in rows})
    return [
        PastResult(row["repo"], _full_name(row["workflow"], row["job"]), row["head_sha"],
                   (row["repository_id"], row["job_id"]), CONCLUSIONS[row["conclusion"]] or None)
        for row in rows
        if (row["run_id"], row["attempt"]) in trusted
    ]  # fmt: skip


async def jobs_of_backends(
    tx: Transaction, upstream: str, backends: Collection[str], shas: Sequence[str]
) -> list[PastResult]:
    """Return jobs of the runs that backends (in lower case) reported for trusted commits of upstream."""
    if not shas or not backends:
        return []
    reported = sa.select(
        sa.func.lower(REPORTED.downstream_repo).label("repo"),
        REPORTED.run_id,
        REPORTED.run_attempt,
        REPORTED.head_sha,
    ).where(
        REPORTED.head_sha.in_(shas),
        REPORTED.pr_number.is_(None),
        sa.func.lower(REPORTED.upstream_repo) == upstream.lower(),
        sa.func.lower(REPORTED.downstream_repo).in_(sorted(backends)),
    )
    runs = await tx.rows(reported.distinct().limit(RUNS_MOST))
    of_run = {
        (str(row["repo"]), *key): str(row["head_sha"])
        for row in runs
        for key in run_keys([(row["run_id"], row["run_attempt"])])
    }
    if not of_run:
        return []
    query = sa.select(
        JOB.repo,
        JOB.workflow_name,
        JOB.name,
        JOB.run_id,
        JOB.run_attempt,
        JOB.repository_id,
        JOB.id,
        JOB.conclusion,
    ).where(tx.among((JOB.run_id, JOB.run_attempt), sorted({key[1:] for key in of_run})))
    return [
        PastResult(row["repo"], job_names.parse_name(row["workflow_name"], row["name"] or "").shard_free, sha,
                   (row["repository_id"], row["id"]), row["conclusion"])
        for row in await tx.rows(query.limit(JOBS_MOST))
        if (sha := of_run.get((row["repo"].lower(), row["run_id"], row["run_attempt"])))
    ]  # fmt: skip


async def captures_of_jobs(
    tx: Transaction, jobs: Iterable[tuple[int, int]]
) -> dict[tuple[int, int], list[tuple[str, str]]]:
    """Return the rules and captures of some jobs' logs, by repository and id, the verdict first."""
    keys = sorted(set(jobs))
    if not keys:
        return {}
    query = sa.select(VERDICT.repository_id, VERDICT.job_id, VERDICT.rule, VERDICT.captures).where(
        tx.among((VERDICT.repository_id, VERDICT.job_id), keys), VERDICT.current, VERDICT.rule.is_not(None)
    )
    captures: dict[tuple[int, int], list[tuple[str, str]]] = {}
    for row in await tx.rows(query.order_by(VERDICT.repository_id, VERDICT.job_id, VERDICT.rank)):
        capture = (str(row["rule"]), "\0".join(row["captures"]))
        captures.setdefault((row["repository_id"], row["job_id"]), []).append(capture)
    return captures


async def _trusted_runs(
    tx: Transaction, settings: Settings, keys: set[tuple[int, int]]
) -> set[tuple[int, int]]:
    if not keys:
        return set()
    query = select(WorkflowRunRow, records["workflow_run"]).where(
        tx.among((RUN.id, RUN.run_attempt), sorted(keys))
    )
    return {
        (run["id"], run["run_attempt"])
        for run in await tx.fetch(query)
        if await job_runs.is_trusted_run(tx, settings, run)
    }


def _full_name(workflow: str, job: str) -> str:
    return f"{workflow} / {job}" if workflow else job


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
    head = await upstream_head(tx, failed) if failed else None
    if failed is None or head is None:
        return None
    is_upstreams = first["repository_id"] in await repositories.read_ids(tx, head.repo)
    failed_job = (
        branch_history.FailedJob(first["job_id"])
        if is_upstreams
        else branch_history.FailedJob(None, failed["run_id"], name)
    )
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
