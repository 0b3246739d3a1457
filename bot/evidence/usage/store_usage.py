"""The receiver of usage logs: which job each is of, which of two is used, and jobs that come late.

Whose a log is goes by GitHub's word, or by our row of an upload; what the log says only selects among a run's
jobs.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, NamedTuple, TypedDict, cast

from bot.core.errors import GiveUp
from bot.evidence.collect import uploads
from bot.evidence.collect.receivers import MIB, Job, Receiver, attribute_artifact, reported_job
from bot.evidence.usage import daily_sums, measured_jobs
from bot.evidence.usage.tables import LogRow
from bot.jobs import job_names, runs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.context import Context
    from bot.db.transaction import Changed, Transaction
    from bot.evidence.collect.receivers import Fetched
    from bot.evidence.collect.tables import UploadRow
    from bot.evidence.usage.tables import JobKey, JobNames, JobRow
    from bot.ingest.record_rows import WorkflowJobRow
    from bot.queue.tasks import Task

ELSEWHERE = 2**52  # from here on ids of runs and jobs of other CIs; GitHub's are far below
DAY = 86_400_000  # milliseconds
UNKNOWN = "unknown"  # a runner without label
AROUND = 3600  # seconds before and after the run in which a record may still belong to it
SEVERAL = "several_logs"
TASK_KIND = "utilization"


class ParsedUsage(TypedDict):
    """What the parser child says of a usage log: columns of its row, and what only the log itself claims."""

    row: LogRow
    claims: tuple[str, str]  # the ids of run and job that the log names, empty where it names none
    first_at: int | None  # seconds; the first of the records


class LogOwner(NamedTuple):
    """The job that a log is of, and what is known of it. Times are milliseconds."""

    key: JobKey
    names: JobNames
    claims: tuple[str, str]  # what the log should say: ids of run and job, empty where they are not known
    started_at: int | None = None
    completed_at: int | None = None


async def store_log(
    tx: Transaction, _context: Context, fetched: Fetched, log: ParsedUsage, blob: str | None
) -> None:
    """Store the row of a log, and request a new count of its day."""
    owner = await find_owner(tx, fetched, log["claims"][1])
    before = await measured_jobs.lock_job(tx, owner.key)
    after = prefer_log(before, _usage_row(fetched, log, owner, blob, now=tx.now))
    if after != before:
        await measured_jobs.put_job(tx, after)
        daily_sums.request_days(tx, before, after)


def _usage_row(fetched: Fetched, log: ParsedUsage, owner: LogOwner, blob: str | None, *, now: int) -> JobRow:
    odd = find_contradictions(log, owner)
    as_read = [list(segment) for segment in log["row"]["segments"]]  # JSON has no tuples: rows are compared
    row: JobRow = {
        **owner.key,
        **owner.names,
        "trusted": fetched.trusted,
        "source_id": fetched.object_id,
        **log["row"],
        "flags": sorted({*log["row"]["flags"], *odd}),
        "segments": cast("list[tuple[str, int, int]]", as_read),
        "machine_s": 0,
        "day": now // DAY,
        "blob": blob,
        "received_at": now,
    }
    return with_owner(row, owner)


RECEIVER = Receiver(
    store=store_log,
    answer=ParsedUsage,
    most_written=64 * MIB,
    members=("*usage_log.txt",),
    blob_prefix="util",
)


def with_owner(row: JobRow, owner: LogOwner) -> JobRow:
    """Give a log's row to a job; keep its time and day if the job's end is not known."""
    owned: JobRow = {**row, **owner.key, **owner.names}
    started, ended = owner.started_at, owner.completed_at
    owned["machine_s"] = round(row["observed_s"])
    if ended is not None:
        owned["day"] = ended // DAY
        if started is not None:
            owned["machine_s"] = max(0, ended - started) // 1000
    return owned


def number_elsewhere(*parts: str) -> int:
    """Return our id of a run or job on another CI."""
    digest = hashlib.sha256("\0".join(parts).encode()).digest()
    return ELSEWHERE + int.from_bytes(digest[:8], "big") % ELSEWHERE


def run_elsewhere(repo: str, run_id: str) -> int:
    """Return our id of a backend's run on another CI."""
    return number_elsewhere(repo.casefold(), run_id)


async def find_owner(tx: Transaction, fetched: Fetched, claimed_job: str) -> LogOwner:
    """Return the job that a log is of, which the log may name; else its run, and an id below 0."""
    if fetched.source == "upload":
        upload = await uploads.find_upload(tx, -fetched.object_id)
        assert upload
        return await job_of_upload(tx, upload)
    jobs = await runs.jobs_of_run(tx, fetched.repository_id, fetched.run_id)
    job_id = fetched.job_id
    if job_id is None:
        known = [Job(job["id"], job["name"] or "", job["run_attempt"] or 1) for job in jobs]
        job_id = reported_job(claimed_job, known).job_id
    job = next((candidate for candidate in jobs if candidate["id"] == job_id), None)
    return owner_from_job(job, jobs) if job is not None else await _owner_from_run(tx, fetched)


async def _owner_from_run(tx: Transaction, fetched: Fetched) -> LogOwner:
    run = await runs.find_attempt(tx, fetched.run_id, fetched.run_attempt)
    return LogOwner(
        key={
            "repository_id": fetched.repository_id,
            "run_id": fetched.run_id,
            "run_attempt": fetched.run_attempt,
            "job_id": -fetched.object_id,
        },
        names={
            "repo": fetched.repo,
            "workflow_name": (run and run["name"]) or "",
            "job_name": fetched.name,
            "base_name": fetched.name,
            "config": "",
            "runner_label": UNKNOWN,
            "head_sha": fetched.head_sha,
            "head_branch": (run and run["head_branch"]) or "",
        },
        claims=(str(fetched.run_id), ""),
        started_at=run and run["run_started_at"],
        completed_at=run and run["updated_at"],
    )


def owner_from_job(job: WorkflowJobRow, jobs: Sequence[WorkflowJobRow]) -> LogOwner:
    """Describe a job on GitHub; the other jobs of its run show which numbers in its name are shards."""
    attempt = job["run_attempt"] or 1
    beside = [candidate for candidate in jobs if (candidate["run_attempt"] or 1) == attempt]
    names = job_names.resolve_shards(
        job_names.parse_name(candidate["workflow_name"], candidate["name"] or "") for candidate in beside
    )
    name = next(name for name, candidate in zip(names, beside, strict=True) if candidate["id"] == job["id"])
    return LogOwner(
        key={
            "repository_id": job["repository_id"],
            "run_id": job["run_id"] or 0,
            "run_attempt": attempt,
            "job_id": job["id"],
        },
        names={
            "repo": job["repo"],
            "workflow_name": name.workflow,
            "job_name": name.name,
            "base_name": name.job,
            "config": name.config,
            "runner_label": job_names.choose_label(job["labels"] or []) or name.runner or UNKNOWN,
            "head_sha": job["head_sha"] or "",
            "head_branch": job["head_branch"] or "",
        },
        claims=(str(job["run_id"]), str(job["id"])),
        started_at=job["started_at"],
        completed_at=job["completed_at"],
    )


async def job_of_upload(tx: Transaction, upload: UploadRow) -> LogOwner:
    """Describe the job of an uploaded log: one on GitHub, if its run there has a job of that name."""
    repository_id, repo = upload["repository_id"], upload["backend"]
    run_id, attempt = upload["run_id"], upload["run_attempt"]
    if run_id.isascii() and run_id.isdigit() and len(run_id) < 19:
        jobs = await runs.jobs_of_run(tx, repository_id, int(run_id))
        same = [
            candidate
            for candidate in jobs
            if candidate["name"] == upload["job"] and (candidate["run_attempt"] or 1) == attempt
        ]
        if len(same) == 1:
            return owner_from_job(same[0], jobs)
    name = job_names.parse_name(upload["workflow"], upload["job"])
    return LogOwner(
        key={
            "repository_id": repository_id,
            "run_id": run_elsewhere(repo, run_id),
            "run_attempt": attempt,
            "job_id": number_elsewhere(repo.casefold(), run_id, upload["workflow"], upload["job"]),
        },
        names={
            "repo": repo,
            "workflow_name": upload["workflow"],
            "job_name": upload["job"],
            "base_name": name.job,
            "config": name.config,
            "runner_label": name.runner or UNKNOWN,
            "head_sha": "",
            "head_branch": "",
        },
        claims=(run_id, ""),
        completed_at=upload["received_at"],
    )


def find_contradictions(log: ParsedUsage, owner: LogOwner) -> list[str]:
    """Return flags for claims of a log that contradict its run, whose ids are used all the same."""
    flags = []
    if any(
        theirs and ours and theirs != ours for theirs, ours in zip(log["claims"], owner.claims, strict=True)
    ):
        flags.append("foreign_ids")
    first, last = log["first_at"], log["row"]["end_at"]
    if first is not None:
        early = owner.started_at is not None and first < owner.started_at // 1000 - AROUND
        late = owner.completed_at is not None and last > owner.completed_at // 1000 + AROUND
        if early or late:
            flags.append("outside_run")
    return flags


def prefer_log(before: JobRow | None, after: JobRow) -> JobRow:
    """Choose the log of a job: the one with more valid records, then the later artifact.

    That there are several is a flag of the one that is used. The same file twice is one.
    """
    if before is None:
        return after
    if before["source_id"] != after["source_id"]:
        if before["digest"] and before["digest"] == after["digest"]:
            return before
        chosen = max(before, after, key=_rank)
        return {**chosen, "flags": sorted({*chosen["flags"], SEVERAL})}
    again: JobRow = {**after, "received_at": before["received_at"]}
    if SEVERAL in before["flags"]:
        again["flags"] = sorted({*after["flags"], SEVERAL})
    return again


def _rank(row: JobRow) -> tuple[int, bool, int]:
    """Rank a log; of two uploads, whose ids count down, the later one is better."""
    return (
        row["records"] if row["status"] == "ok" else 0,
        row["source_id"] > 0,
        abs(row["source_id"]),
    )


async def request_attribution(tx: Transaction, changed: Changed) -> None:
    """Before a commit, enqueue the runs with logs whose jobs ended just now."""
    ended = {
        (int(row["repository_id"]), int(row["run_id"]))
        for row in changed.get("workflow_job", ())
        if row.get("conclusion") and row.get("run_id")
    }
    for repository_id, run_id in await measured_jobs.measured_runs(tx, sorted(ended)) if ended else ():
        tx.enqueue(TASK_KIND, f"{repository_id}/{run_id}")


async def attribute_again(context: Context, task: Task) -> None:
    """Attribute the logs of a run (key: repository and run, by id) again, one in a transaction."""
    repository, _, number = task.key.partition("/")
    if not repository.isdigit() or not number.isdigit():
        raise GiveUp(f"{task.key!r} names no run")
    async with context.store.read() as tx:
        keys = await measured_jobs.keys_of_run(tx, int(repository), int(number))
    for key in keys:
        async with context.store.transaction() as tx:
            await _attribute_log(tx, key)


async def _attribute_log(tx: Transaction, key: JobKey) -> None:
    jobs = await runs.jobs_of_run(tx, key["repository_id"], key["run_id"])
    before = await measured_jobs.lock_job(tx, key)
    owner = before and _owner_now(before, jobs)
    if before is None or owner is None:
        return
    after = with_owner(before, owner)
    if owner.key == key:
        if after != before:
            await measured_jobs.put_job(tx, after)
            daily_sums.request_days(tx, before, after)
        return
    there = await measured_jobs.lock_job(tx, owner.key)
    chosen = prefer_log(there, after)
    await measured_jobs.delete_job(tx, key)
    await measured_jobs.put_job(tx, chosen)
    daily_sums.request_days(tx, before, there, chosen)


def _owner_now(row: JobRow, jobs: Sequence[WorkflowJobRow]) -> LogOwner | None:
    """Return the job of a log by GitHub's present records, or None."""
    job_id: int | None = row["job_id"]
    if row["job_id"] < 0:  # its name is the artifact's
        named = [Job(job["id"], job["name"] or "", job["run_attempt"] or 1) for job in jobs]
        job_id = attribute_artifact(
            row["job_name"], named, attempt=row["run_attempt"], run_id=row["run_id"]
        ).job_id
    job = next((candidate for candidate in jobs if candidate["id"] == job_id), None)
    return owner_from_job(job, jobs) if job else None
