"""Jobs whose machine was watched: their rows, why a job has none, and what its machine did in one line."""

from __future__ import annotations

import functools
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import sqlalchemy as sa

from bot.core import escaping
from bot.db.rows import select
from bot.db.statements import Statement
from bot.db.transaction import among_given
from bot.evidence.collect.tables import ci_artifact, ci_fetch, ci_listing
from bot.evidence.usage.parse.segments import in_background, shown_name
from bot.evidence.usage.tables import JobKey, JobRow, JobSummary, utilization_job
from bot.jobs.collection import FetchState, state_in_words
from bot.oot.results.tables import oot_workflow_job

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from bot.db.transaction import Transaction
    from bot.ingest.record_rows import WorkflowJobRow
    from bot.web.blocks import Tone

JOB = utilization_job.c
KEY = tuple(JobKey.__annotations__)
RUNS_MOST = 1_000  # that backends reported for one commit
REPORTED = oot_workflow_job.c
ARTIFACT, FETCH, LISTING = ci_artifact.c, ci_fetch.c, ci_listing.c
NO_USAGE_LOG = "the job left no usage log"
ARTIFACTS = (
    sa.select(ARTIFACT.name, FETCH.state, FETCH.error, FETCH.tries)
    .join_from(
        ci_artifact,
        ci_fetch,
        (FETCH.repository_id == ARTIFACT.repository_id)
        & (FETCH.kind == "artifact")
        & (FETCH.object_id == ARTIFACT.id),
        isouter=True,
    )
    .order_by(ARTIFACT.id.desc())
    .limit(1)
)
NAME_MOST = 80  # characters of a command
IDLE_MUCH = 0.5  # share from which on idle accelerators are worth a warning
GPUS = frozenset({"pynvml", "nvidia-smi", "amdsmi", "amd-smi", "rocm-smi", "xpu-smi"})
WHY_NOT = {
    "no_records": "the usage log holds no records",
    "legacy": "the usage log is of an older model",
    "refused": "the usage log was refused",
}


async def find_measured_job(
    tx: Transaction, repository_ids: Collection[int], job_id: int, attempt: int | None = None
) -> JobRow | None:
    """Find a job of one of some repositories: its newest attempt unless one is named."""
    query = select(JobRow, utilization_job).where(
        JOB.repository_id.in_(sorted(repository_ids)), JOB.job_id == job_id
    )
    if attempt is not None:
        query = query.where(JOB.run_attempt == attempt)
    return await tx.fetch_first(query.order_by(JOB.run_attempt.desc()).limit(1))


async def lock_job(tx: Transaction, key: JobKey) -> JobRow | None:
    """Return the job of a key, and lock it, or its absence, until this transaction ends."""
    if not tx.sqlite:
        text = "/".join(map(str, ("utilization", *key.values())))
        await tx.run(sa.select(sa.func.pg_advisory_xact_lock(sa.func.hashtext(text))))
    return await tx.fetch_first(select(JobRow, utilization_job).where(*_has_key(key)))


async def put_job(tx: Transaction, row: JobRow) -> None:
    """Store a job, replacing what was known of it."""
    await tx.upsert(utilization_job, [row], replaced=list(row), index=KEY)
    tx.note_changed("utilization_job", [row])


async def delete_job(tx: Transaction, key: JobKey) -> None:
    """Delete a job."""
    await tx.run(sa.delete(utilization_job).where(*_has_key(key)))
    tx.note_changed("utilization_job", [key])


async def measured_runs(tx: Transaction, keys: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return those runs, by repository and id, that have a measured job."""
    runs = await tx.run(_measured_runs(sqlite=tx.sqlite), {"wanted": tx.keys(keys)})
    return sorted({(row.repository_id, row.run_id) for row in runs})


@functools.cache
def _measured_runs(*, sqlite: bool) -> Statement:
    """Return the query for runs by their keys: it runs before the commit of every job's event."""
    key = (JOB.repository_id, JOB.run_id)
    return Statement(sa.select(*key).where(among_given(key, "wanted", sqlite=sqlite)))


async def keys_of_run(tx: Transaction, repository_id: int, run_id: int) -> list[JobKey]:
    """Return the keys of a run's jobs."""
    query = select(JobKey, utilization_job).where(JOB.repository_id == repository_id, JOB.run_id == run_id)
    return await tx.fetch(query.order_by(JOB.job_id))


def _has_key(key: JobKey) -> list[sa.ColumnElement[bool]]:
    return [JOB[name] == value for name, value in key.items()]


async def jobs_of_run(tx: Transaction, repository_id: int, run_id: int, *, limit: int) -> list[JobSummary]:
    """Return the jobs of all attempts of a run."""
    query = select(JobSummary, utilization_job).where(
        JOB.repository_id == repository_id, JOB.run_id == run_id
    )
    return await tx.fetch(query.order_by(JOB.run_attempt.desc(), JOB.job_id).limit(limit))


async def jobs_of_head(
    tx: Transaction, repository_ids: Collection[int], sha: str, *, limit: int
) -> list[JobSummary]:
    """Return the jobs of a repository's own runs on a commit."""
    query = select(JobSummary, utilization_job).where(
        JOB.head_sha == sha, JOB.repository_id.in_(sorted(repository_ids))
    )
    return await tx.fetch(query.order_by(JOB.job_id).limit(limit))


async def jobs_of_runs(
    tx: Transaction, repos: Collection[str], keys: Sequence[tuple[int, int]], *, limit: int
) -> list[JobSummary]:
    """Return the jobs of runs, by id and attempt, in repositories with these names in lower case."""
    if not keys:
        return []
    named = sa.func.lower(JOB.repo).in_(sorted(repos))
    query = select(JobSummary, utilization_job).where(tx.among((JOB.run_id, JOB.run_attempt), keys), named)
    return await tx.fetch(query.order_by(JOB.repo, JOB.job_id).limit(limit))


async def newest_jobs(tx: Transaction, repository_ids: Collection[int], *, limit: int) -> list[JobSummary]:
    """Return the jobs of some repositories that were measured last."""
    query = select(JobSummary, utilization_job).where(
        JOB.repository_id.in_(sorted(repository_ids)), JOB.status == "ok"
    )
    return await tx.fetch(query.order_by(JOB.received_at.desc()).limit(limit))


async def reported_runs(tx: Transaction, repo: str, sha: str) -> list[tuple[str, str, int]]:
    """Return the runs that backends reported for a commit: repository, id and attempt of each."""
    query = (
        sa.select(REPORTED.downstream_repo, REPORTED.run_id, REPORTED.run_attempt)
        .where(sa.func.lower(REPORTED.upstream_repo) == repo.lower(), REPORTED.head_sha == sha)
        .distinct()
        .limit(RUNS_MOST)
    )
    return [(name, run_id, attempt) for name, run_id, attempt in await tx.run(query)]


async def explain_absence(tx: Transaction, job: WorkflowJobRow) -> str:
    """Return why a job has no utilization."""
    repository_id, run_id = job["repository_id"], job["run_id"] or 0
    of_run = (ARTIFACT.repository_id == repository_id, ARTIFACT.run_id == run_id)
    artifact = (
        await tx.run(ARTIFACTS.where(*of_run, ARTIFACT.kind == "usage", ARTIFACT.job_id == job["id"]))
    ).one_or_none()
    if artifact is not None:
        name, state, error, tries = artifact
        if state == FetchState.PARSED:
            return f"{name} holds no usage log"
        return f"{name}: {state_in_words(state or FetchState.SKIPPED, error, tries=tries or 0)}"
    if job["status"] != "completed":
        return "the job is not over"
    listed = sa.select(LISTING.state, LISTING.error).where(
        LISTING.repository_id == repository_id, LISTING.run_id == run_id
    )
    listing = (await tx.run(listed.order_by(LISTING.at.desc()).limit(1))).one_or_none()
    if listing is None:
        return "the run's artifacts have not been listed yet"
    state, error = listing
    return NO_USAGE_LOG if state == "listed" else f"{NO_USAGE_LOG} that is known: {error}"


def summarize_job(job: JobSummary) -> str:
    """Describe a job's utilization in one line, or why it was not charted."""
    if job["status"] != "ok":
        return f"{WHY_NOT.get(job['status'], job['status'])}: {job['reason']}"
    parts = []
    if job["cpu_avg"] is not None:
        parts.append(f"CPU {job['cpu_avg']:.0f} % avg")
    if job["mem_max"] is not None:
        parts.append(f"memory {job['mem_max']:.0f} %{_time_of_peak(job)}")
    share = idle_share(job)
    if share is not None:
        parts.append(f"{accelerators(job['gpu_type'])} idle {share:.0%}".replace("%", " %"))
    return ", ".join(parts) or "records without numbers"


def tone_of_job(job: JobSummary) -> Tone:
    """Return the tone of a job's line: its colour and sign."""
    if job["status"] != "ok":
        return "idle"
    return "warn" if job["oom_risk"] or (idle_share(job) or 0) >= IDLE_MUCH else "good"


def idle_share(job: JobSummary) -> float | None:
    """Return the share of accelerator time that was idle, or None without accelerators."""
    return min(1.0, job["idle_gpu_s"] / job["gpu_s"]) if job["gpu_s"] else None


def accelerators(gpu_type: str | None) -> str:
    """Return what a machine's accelerators are called."""
    kind = (gpu_type or "").casefold()
    for part, name in (("npu", "NPUs"), ("tpu", "TPUs")):
        if part in kind:
            return name
    return "GPUs" if kind in GPUS else "accelerators"


def time_of_day(seconds: int) -> str:
    """Return the time of day, UTC."""
    return f"{datetime.fromtimestamp(seconds, UTC):%H:%M:%S}"


def command_words(name: str, most: int = NAME_MOST) -> str:
    """Return the part of a command that is worth reading, on one line."""
    return escaping.shorten(escaping.one_line(shown_name(name)), most)


def _time_of_peak(job: JobSummary) -> str:
    peak = job["peak"]
    if peak is None:
        return ""
    ran = [name for name in peak["commands"] if name.startswith("python") and not in_background(name)]
    more = f" and {len(ran) - 1} more" if len(ran) > 1 else ""
    return f" at {time_of_day(peak['at'])[:5]}" + (f" while {command_words(ran[0])}{more} ran" if ran else "")
