"""Is this report believed, and what does it change? One report, one transaction; both doors call it.

Identity comes from the verified token; pull request, head and level from our own dispatch; only the outcome of the
job comes from the report.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import structlog

from bot import callback_token, metrics
from bot.domain import lifecycle
from bot.errors import Rejected
from bot.store import allowlists, dispatches, jobs, secrets

if TYPE_CHECKING:
    from bot.domain.allowlist import Entry
    from bot.domain.wire import Report
    from bot.oidc import Claims
    from bot.settings import Settings
    from bot.store import Transaction

log = structlog.get_logger("bot.results")

Row = dict[str, Any]
MOST_TRIES = 3  # against others changing the same job at the same moment
CONFIRM_AFTER = 5  # seconds: a job that reports is still running, so GitHub's word comes a little later


async def accept(tx: Transaction, settings: Settings, claims: Claims, report: Report) -> Row:
    """Take one report; returns the answer's members. Raises Rejected before anything is written."""
    entry = await _listed(tx, settings, claims)
    if entry is None:
        return {"status": "ignored"}
    await _within_rate(tx, settings, entry)
    dispatch = await dispatches.find(tx, delivery_id=report.delivery_id, backend=entry.repo)
    if dispatch is None:
        raise Rejected(
            404,
            "unknown_dispatch",
            f"delivery {report.delivery_id[:100]} was never dispatched to {entry.repo}",
        )
    await _asked_by_us(tx, entry, dispatch, report)
    job = _identify(dispatch, claims, report)
    changed = await _apply(tx, dispatch, job, report)
    await jobs.count_accepted(tx, entry.key)
    answer: Row = {"status": report.status}
    if not changed:
        return answer | {"duplicate": True}
    _follow_up(tx, entry, dispatch, job, report)
    return answer


async def _listed(tx: Transaction, settings: Settings, claims: Claims) -> Entry | None:
    """Return the caller's allowlist entry, None when unlisted callers are ignored."""
    allowlist = await allowlists.in_force(tx)
    entry = allowlist.find(claims.repository) if allowlist else None
    if entry is None or entry.level < 2:
        if settings.unlisted == "ignore":
            return None
        raise Rejected(
            403,
            "not_listed",
            f"{claims.repository} may not report: it must be in the allowlist at L2 or above",
        )
    if entry.repository_id is not None and str(entry.repository_id) != claims.repository_id:
        raise Rejected(
            403,
            "forbidden",
            f"{claims.repository} is not the repository the allowlist pins by repository_id",
        )
    return entry


async def _within_rate(tx: Transaction, settings: Settings, entry: Entry) -> None:
    limit = entry.rate_limit or settings.rate_limit_per_min
    count, oldest = await jobs.accepted_lately(tx, entry.key)
    if count >= limit:
        wait = max(oldest + jobs.RATE_WINDOW - tx.now // 1000, 1)
        detail = f"{entry.repo} may send {limit} reports a minute: send this one again in {wait} s"
        raise Rejected(429, "rate_limited", detail, headers={"Retry-After": str(wait)})


async def _asked_by_us(tx: Transaction, entry: Entry, dispatch: Row, report: Report) -> None:
    """Check the callback token: it may be absent where it is optional, but never wrong."""
    if report.callback_token is None and entry.callback_token == "optional":  # noqa: S105 - a mode
        return
    key = await secrets.key(tx, "callback")
    if not callback_token.belongs(report.callback_token, dispatch, key, now=tx.now):
        what = "is wrong" if report.callback_token else "is missing"
        raise Rejected(
            403,
            "forbidden",
            f"callback_token {what}: send back client_payload.callback_token of this dispatch",
        )


def _identify(dispatch: Row, claims: Claims, report: Report) -> Row:
    """Return the job's identifying and trusted columns: the token's run where it names one."""
    claimed = {
        "run_id": (claims.run_id, report.run_id),
        "run_attempt": (claims.run_attempt, report.run_attempt),
    }
    flags = {}
    for name, (signed, said) in claimed.items():
        if signed is not None and signed != said:
            flags[f"{name}_mismatch"] = True
            metrics.MISMATCHES.labels(name).inc()
            log.warning("the report contradicts its token", field=name, signed=signed, said=str(said)[:100])
    row = {
        "dispatch_id": dispatch["id"],
        "downstream_repo": dispatch["backend"],
        "upstream_repo": dispatch["upstream_repo"],
        "pr_number": dispatch["pr_number"],
        "head_sha": dispatch["head_sha"],
        "delivery_id": dispatch["delivery_id"],
        "downstream_repo_level": dispatch["level"],
        "event_type": dispatch["event_type"],
        "workflow_name": report.workflow_name,
        "job_name": report.job_name,
        "run_id": claims.run_id or report.run_id,
        "run_attempt": claims.run_attempt or report.run_attempt,
        "reporter_check_run_id": claims.check_run_id,
        "source": "callback",
        "flags": flags,
    }
    return row | {"job_key": jobs.job_key(row)}


async def _apply(tx: Transaction, dispatch: Row, job: Row, report: Report) -> bool:
    """Move the job to where the report says it is; returns False when it was there already."""
    for _ in range(MOST_TRIES):
        present = await jobs.get(tx, job["job_key"])
        try:
            change = lifecycle.decide(present, report, now=tx.now, dispatched_at=dispatch["dispatched_at"])
        except lifecycle.Conflict as error:
            raise Rejected(409, "conflict", str(error)) from None
        if change is None:
            return False
        values = {**change.values, "flags": change.values["flags"] | job["flags"]}
        if present is None:
            done = await jobs.add(tx, job | values)
        else:
            done = await jobs.move(tx, present, values)
        if done:
            return True
    raise Rejected(
        503,
        "busy",
        "this job is being reported on elsewhere: send it again",
        headers={"Retry-After": "1"},
    )


def _follow_up(tx: Transaction, entry: Entry, dispatch: Row, job: Row, report: Report) -> None:
    if dispatch["pr_number"] is not None:
        tx.enqueue("publish", f"{dispatch['upstream_repo']}#{dispatch['pr_number']}")
    if report.status == "completed" and dispatch["level"] >= 4 and entry.confirm:
        key = f"{dispatch['backend_key']}/{job['run_id']}/{job['run_attempt']}"
        tx.enqueue("confirm", key, delay=CONFIRM_AFTER)
