"""Acceptance of reports from backends and relays, any number in one transaction.

A refusal is returned, not raised, so that it does not affect other reports.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bot.core.errors import Rejected
from bot.oot.reports import authorization, lifecycle, mismatches
from bot.oot.reports.authorization import Job
from bot.oot.reports.bodies import Accepted
from bot.oot.reports.quotas import RateQuota, SizeQuota
from bot.oot.reports.store import accepted, static_keys
from bot.oot.results import task_keys
from bot.oot.results.store import jobs
from bot.oot.results.task_keys import request_publish

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.oot.reports.authorization import Lookup, Submission
    from bot.oot.reports.envelope import Envelope
    from bot.oot.results.tables import JobRow

Answer = Accepted | Rejected
MOST_TRIES = 3  # when others report on the same new job at the same moment
CONFIRM_AFTER = 5  # seconds: a job that reports is still running, GitHub shows its end a little later


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Results of some reports, to be announced after commit."""

    answers: list[Answer]  # in order
    contradictions: list[tuple[str, str]]  # delivery and field


async def accept(tx: Transaction, settings: Settings, submissions: Sequence[Submission]) -> Outcome:
    """Accept backends' reports as if one came after the other."""
    lookup = await authorization.look_up(tx, settings, submissions)
    judged = [_judged(lookup, one) for one in submissions]
    admitted = {at: job for at, job in enumerate(judged) if isinstance(job, Job)}
    rates = await RateQuota.read(tx, admitted.values())
    begun = await _begun(tx, admitted.values()) if settings.queue_times == "first" else None
    recorded = await _record(tx, admitted, rates, begun)
    answers = [recorded[at] if isinstance(result, Job) else result for at, result in enumerate(judged)]
    await accepted.record(tx, rates.accepted)
    taken = {at for at in admitted if not isinstance(answers[at], Rejected)}
    await static_keys.record_use(tx, {key for at in taken if (key := submissions[at].claims.key_id)})
    wrong = [
        (job.report.delivery_id, name)
        for job in admitted.values()
        for name in mismatches.named(job.row["flags"])
    ]
    return Outcome(answers=answers, contradictions=wrong)


async def accept_relayed(tx: Transaction, settings: Settings, envelope: Envelope) -> Answer:
    """Accept what an outside relay passes on; returns the answer."""
    job = authorization.relayed(settings, envelope)
    rates = await RateQuota.read(tx, [job])
    answers = await _record(tx, {0: job}, rates)
    await accepted.record(tx, rates.accepted)
    return answers[0]


def _judged(lookup: Lookup, one: Submission) -> Job | Answer:
    try:
        return authorization.admit(lookup, one) or Accepted(status="ignored")
    except Rejected as refusal:
        return refusal


async def _record(
    tx: Transaction,
    reported: Mapping[int, Job],
    rates: RateQuota,
    begun: set[tuple[str, str]] | None = None,
    tries: int = MOST_TRIES,
) -> dict[int, Answer]:
    """Write what was reported on jobs; rows that another transaction inserted meanwhile are read again.

    `begun` holds the runs of which a job was reported: only the first has a queue time; None: all have.
    """
    present = await jobs.get_jobs(tx, {job.key for job in reported.values()})
    sizes = await SizeQuota.read(tx, reported.values(), rates, known=present.keys())
    rows = dict(present)
    answers = {at: _apply(job, rows, rates, sizes, begun, now=tx.now) for at, job in reported.items()}
    lost = await jobs.add(tx, {key: row for key, row in rows.items() if key not in present})
    await jobs.change(tx, {key: rows[key] for key, row in present.items() if rows[key] is not row})
    again = {at: job for at, job in reported.items() if job.key in lost}
    for at, job in reported.items():
        if at not in again:
            _follow_up(tx, job, answers[at])
        elif not isinstance(answers[at], Rejected):
            rates.give_back(job)
    if again and tries > 1:
        return answers | await _record(tx, again, rates, begun, tries - 1)
    busy = Rejected(
        503, "busy", "this job is being reported on elsewhere: send it again", headers={"Retry-After": "1"}
    )
    return answers | dict.fromkeys(again, busy)


async def _begun(tx: Transaction, reported: Iterable[Job]) -> set[tuple[str, str]]:
    """Return the runs, of those reported on, of which a job was reported before, by dispatch and id."""
    runs = {(job.row["dispatch_id"], job.row["run_id"]) for job in reported if job.row["dispatch_id"]}
    return await jobs.known_runs(tx, {(dispatch, run) for dispatch, run in runs if dispatch})


def _apply(
    job: Job,
    rows: dict[str, JobRow],
    rates: RateQuota,
    sizes: SizeQuota,
    begun: set[tuple[str, str]] | None,
    *,
    now: int,
) -> Answer:
    """Change a job's row in `rows` to what the report says, where it may."""
    present = rows.get(job.key)
    try:
        run = (job.row["dispatch_id"] or "", job.row["run_id"])
        change = lifecycle.decide(
            present,
            job.report,
            now=now,
            dispatched_at=job.dispatched_at,
            waited=begun is None or run not in begun,
        )
        if job.measured:
            change = lifecycle.as_measured(present, change, job.measured, now=now)
        if present is None:
            sizes.check(job)
        rates.check(job, now)
    except lifecycle.Conflict as error:
        if job.first_stands:
            return Accepted(status=job.report.job["status"], duplicate=True)
        return Rejected(409, "conflict", str(error))
    except Rejected as refusal:
        return refusal
    if change is None:
        return Accepted(status=job.report.job["status"], duplicate=True)
    if begun is not None:
        begun.add(run)
    if present is None:
        sizes.enter(job)
    values = sizes.fitting(job, change)
    values["flags"] = _origin_flags(job, present) | values["flags"]
    rows[job.key] = jobs.whole_row(present or job.row, values)
    return Accepted(status=job.report.job["status"])


def _origin_flags(job: Job, present: JobRow | None) -> dict[str, Any]:
    """Return what a report's origin adds to the flags; a commit that was looked up stays so."""
    flags = job.row["flags"]
    settled = present is not None and "unverified" not in present["flags"]
    return {name: value for name, value in flags.items() if not (settled and name == "unverified")}


def _follow_up(tx: Transaction, job: Job, answer: Answer) -> None:
    """Enqueue the tasks a change makes necessary."""
    row = job.row
    if isinstance(answer, Rejected) or answer.duplicate:
        return
    if row["dispatch_id"]:
        request_publish(tx, row["upstream_repo"], row["pr_number"])
    if job.names:
        tx.enqueue("verify_commit", job.names.commit)
    if job.confirm and job.report.job["status"] == "completed":
        key = task_keys.run_key(row["downstream_repo"], row["run_id"], row["run_attempt"])
        tx.enqueue("confirm", key, delay=CONFIRM_AFTER)
