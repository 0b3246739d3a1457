"""What do reports change? Any number of them in one transaction; one merge for both doors.

A refusal is returned, not raised: one report's never touches another's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bot import trust
from bot.domain import contradiction, lifecycle, run_key
from bot.errors import Rejected
from bot.shares import Meter, Room
from bot.store import jobs, keys, report_rates
from bot.trust import Job

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bot.domain.envelope import Envelope
    from bot.settings import Settings
    from bot.store import Transaction
    from bot.trust import Given, Known

Row = dict[str, Any]
Answer = Row | Rejected
MOST_TRIES = 3  # against others who tell of the same new job at the same moment
CONFIRM_AFTER = 5  # seconds: a job that reports is still running, so GitHub's word comes a little later


@dataclass(frozen=True, kw_only=True)
class Taken:
    """What became of some reports, to be told once it is committed."""

    answers: list[Answer]  # in order
    contradictions: list[tuple[str, str]]  # delivery and field of what was said wrongly


async def accept(tx: Transaction, settings: Settings, given: Sequence[Given]) -> Taken:
    """Take backends' reports as if one came after the other."""
    known = await trust.look_up(tx, settings, given)
    judged = [_judged(known, one) for one in given]
    admitted = {at: job for at, job in enumerate(judged) if isinstance(job, Job)}
    meter = await Meter.of(tx, admitted.values())
    recorded = await _record(tx, admitted, meter)
    answers = [recorded[at] if isinstance(said, Job) else said for at, said in enumerate(judged)]
    await report_rates.count(tx, meter.accepted)
    taken = {at for at in admitted if not isinstance(answers[at], Rejected)}
    await keys.used(tx, {key for at in taken if (key := given[at].claims.key_id)})
    wrong = [
        (job.report.delivery_id, name)
        for job in admitted.values()
        for name in contradiction.named(job.row["flags"])
    ]
    return Taken(answers=answers, contradictions=wrong)


async def accept_relayed(tx: Transaction, settings: Settings, envelope: Envelope) -> Answer:
    """Take what an outside relay passes on; returns the answer."""
    job = trust.relayed(settings, envelope)
    meter = await Meter.of(tx, [job])
    answers = await _record(tx, {0: job}, meter)
    await report_rates.count(tx, meter.accepted)
    return answers[0]


def _judged(known: Known, one: Given) -> Job | Answer:
    try:
        return trust.admit(known, one) or {"status": "ignored"}
    except Rejected as refusal:
        return refusal


async def _record(
    tx: Transaction, told: Mapping[int, Job], meter: Meter, tries: int = MOST_TRIES
) -> dict[int, Answer]:
    """Write what is told of jobs; what somebody else wrote in between is looked at again."""
    present = await jobs.get(tx, {job.key for job in told.values()})
    room = await Room.of(tx, told.values())
    rows = dict(present)
    answers = {at: _apply(job, rows, meter, room, now=tx.now) for at, job in told.items()}
    lost = await jobs.add(tx, {key: row for key, row in rows.items() if key not in present})
    await jobs.change(tx, {key: rows[key] for key, row in present.items() if rows[key] is not row})
    again = {at: job for at, job in told.items() if job.key in lost}
    for at, job in told.items():
        if at not in again:
            _follow_up(tx, job, answers[at])
        elif not isinstance(answers[at], Rejected):
            meter.give_back(job)
    if again and tries > 1:
        return answers | await _record(tx, again, meter, tries - 1)
    busy = Rejected(
        503, "busy", "this job is being reported on elsewhere: send it again", headers={"Retry-After": "1"}
    )
    return answers | dict.fromkeys(again, busy)


def _apply(job: Job, rows: dict[str, Row], meter: Meter, room: Room, *, now: int) -> Answer:
    """Change a job's row in `rows` to what the report says, where it may."""
    present = rows.get(job.key)
    answer: Row = {"status": job.report.status}
    try:
        change = lifecycle.decide(present, job.report, now=now, dispatched_at=job.dispatched_at)
        if present is None:
            room.check(job)
        meter.check(job, now)
    except lifecycle.Conflict as error:
        return Rejected(409, "conflict", str(error))
    except Rejected as refusal:
        return refusal
    if change is None:
        return answer | {"duplicate": True}
    if present is None:
        room.enter(job)
    values = room.fitting(job, change)
    if job.measured:
        times = {"queue_time": job.measured.queue_time, "execution_time": job.measured.execution_time}
        values = lifecycle.as_measured(values, **times)
    rows[job.key] = (present or job.row) | values | {"flags": job.row["flags"] | values["flags"]}
    return answer


def _follow_up(tx: Transaction, job: Job, answer: Answer) -> None:
    """Ask for what a change makes necessary."""
    row = job.row
    if isinstance(answer, Rejected) or "duplicate" in answer:
        return
    if row.get("dispatch_id"):
        tx.publish(row["upstream_repo"], row["pr_number"])
    if job.names:
        tx.enqueue("verify_commit", job.names.commit)
    if job.confirm and job.report.status == "completed":
        key = run_key.of(row["downstream_repo"], row["run_id"], row["run_attempt"])
        tx.enqueue("confirm", key, delay=CONFIRM_AFTER)
