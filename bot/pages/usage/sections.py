"""What utilization adds to the pages of jobs, runs, commits, pull requests and backends: a line for each job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.core import escaping
from bot.evidence.collect import uploads
from bot.evidence.usage import measured_jobs, store_usage
from bot.evidence.usage.measured_jobs import explain_absence
from bot.ingest import repositories
from bot.jobs import runs
from bot.web.blocks import Block, BlockLine

if TYPE_CHECKING:
    from bot.db.transaction import Transaction
    from bot.evidence.usage.tables import JobRow, JobSummary
    from bot.web.blocks import (
        BackendPageSubject,
        CellSubject,
        CommitSubject,
        JobSubject,
        PullSubject,
        RunSubject,
    )

HEADING = "Utilization"
SHOWN = 30  # jobs of one section
READ_MOST = 500
USAGE_KIND = "usage"
NEWEST = 5
NAME_MOST = 160


async def show_job(tx: Transaction, subject: JobSubject) -> list[Block]:
    """Show what a job's machine did, or why that is not known."""
    row = await _usage_row(tx, subject)
    if row is not None:
        page = job_page(subject.repo, row["job_id"])
        return [
            Block(
                heading=HEADING,
                lines=(
                    BlockLine(
                        text=measured_jobs.summarize_job(row), url=page, tone=measured_jobs.tone_of_job(row)
                    ),
                ),
            )
        ]
    job = await runs.find_job(tx, [subject.repository_id], subject.job_id)
    if job is None or subject.conclusion is None:
        return []
    text = f"not measured: {await explain_absence(tx, job)}"
    page = job_page(subject.repo, subject.job_id)
    return [Block(heading=HEADING, lines=(BlockLine(text=text, url=page, tone="idle"),))]


async def _usage_row(tx: Transaction, subject: JobSubject) -> JobRow | None:
    """Return what is known of a job, or of an upload by an id below 0."""
    if subject.job_id > 0:
        return await measured_jobs.find_measured_job(
            tx, [subject.repository_id], subject.job_id, subject.run_attempt
        )
    upload = await uploads.find_upload(tx, -subject.job_id)
    if upload is None or upload["kind"] != USAGE_KIND:
        return None
    key = (await store_usage.job_of_upload(tx, upload)).key
    return await measured_jobs.find_measured_job(
        tx, [key["repository_id"]], key["job_id"], key["run_attempt"]
    )


async def show_run(tx: Transaction, subject: RunSubject) -> list[Block]:
    """Show what machines did for the jobs of a run, and link to its page."""
    jobs = await measured_jobs.jobs_of_run(tx, subject.repository_id, subject.run_id, limit=READ_MOST)
    if not jobs:
        return []
    lines = [BlockLine(text="all measured jobs", url=f"/{subject.repo}/run/{subject.run_id}/utilization")]
    return [Block(heading=HEADING, lines=(*(_job_line(job, subject.repo) for job in jobs[:SHOWN]), *lines))]


async def show_pull(tx: Transaction, subject: PullSubject) -> list[Block]:
    """Show what machines did for the shown head, upstream's and those of backends."""
    return [] if subject.head_sha is None else await _show_head(tx, subject.repo, subject.head_sha)


async def show_commit(tx: Transaction, subject: CommitSubject) -> list[Block]:
    """Show what machines did for a commit, upstream's and those of backends."""
    return await _show_head(tx, subject.repo, subject.sha)


async def show_backend(tx: Transaction, subject: BackendPageSubject) -> list[Block]:
    """Show what the machines of a backend's newest measured jobs did."""
    jobs = await measured_jobs.newest_jobs(tx, await repositories.read_ids(tx, subject.repo), limit=NEWEST)
    public = await _public_jobs(tx, jobs)
    if not public:
        return []
    page = f"/{subject.repo}/utilization" + ("" if public[0]["trusted"] else "?runs=others")
    more = BlockLine(text="measured jobs over 30 days", url=page)
    return [Block(heading=HEADING, lines=(*(_job_line(job, subject.repo) for job in public), more))]


async def show_cell(tx: Transaction, subject: CellSubject) -> dict[int, BlockLine]:
    """Show what machines did while jobs ran, for those that were measured."""
    jobs = await measured_jobs.jobs_of_head(tx, [subject.repository_id], subject.sha, limit=READ_MOST)
    return {
        job["job_id"]: BlockLine(
            text=measured_jobs.summarize_job(job),
            url=job_page(subject.repo, job["job_id"]),
            tone=measured_jobs.tone_of_job(job),
        )
        for job in jobs
        if job["job_id"] in subject.job_ids
    }


async def _public_jobs(tx: Transaction, jobs: list[JobSummary]) -> list[JobSummary]:
    private = {
        owner: (await runs.repository_facts(tx, owner)).private
        for owner in {job["repository_id"] for job in jobs}
    }
    return [job for job in jobs if private[job["repository_id"]] is False]


def job_page(repo: str, job_id: int) -> str:
    """Return the page of a job's utilization."""
    return f"/{repo}/job/{job_id}/utilization"


async def _show_head(tx: Transaction, repo: str, sha: str) -> list[Block]:
    own = await measured_jobs.jobs_of_head(tx, await repositories.read_ids(tx, repo), sha, limit=READ_MOST)
    repos, keys = await _reported_runs(tx, repo, sha)
    public = await _public_jobs(
        tx, [*own, *await measured_jobs.jobs_of_runs(tx, repos, keys, limit=READ_MOST)]
    )
    public.sort(key=_urgency)
    lines = [_job_line(job, repo) for job in public[:SHOWN]]
    if len(public) > SHOWN:
        lines.append(BlockLine(text=f"and {len(public) - SHOWN} more"))
    return [Block(heading=HEADING, lines=tuple(lines))] if lines else []


async def _reported_runs(tx: Transaction, repo: str, sha: str) -> tuple[set[str], list[tuple[int, int]]]:
    """Return the backends that reported runs for a commit, in lower case, and run and attempt of each."""
    names, keys = set(), []
    for name, run_id, attempt in await measured_jobs.reported_runs(tx, repo, sha):
        names.add(name.lower())
        keys.append((store_usage.run_elsewhere(name, run_id), attempt))
        if run_id.isascii() and run_id.isdigit() and len(run_id) < 19:
            keys.append((int(run_id), attempt))
    return names, keys


def _job_line(job: JobSummary, repo: str) -> BlockLine:
    whose = "" if job["repo"].casefold() == repo.casefold() else f"{job['repo']} · "
    name = escaping.shorten(escaping.one_line(job["job_name"]), NAME_MOST)
    page = job_page(job["repo"], job["job_id"]) if job["job_id"] > 0 else None
    return BlockLine(
        text=f"{whose}{name}: {measured_jobs.summarize_job(job)}",
        url=page,
        tone=measured_jobs.tone_of_job(job),
    )


def _urgency(job: JobSummary) -> tuple[bool, bool, float, float]:
    """Return the place of a job in a list: full memory first, then the idlest accelerators."""
    return (
        job["status"] != "ok",
        not job["oom_risk"],
        -(measured_jobs.idle_share(job) or 0.0),
        -(job["mem_max"] or 0.0),
    )
