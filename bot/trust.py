"""Who may report on what? A caller and a report -> the job as far as it can be trusted, or a refusal.

Identity comes from the verified caller; pull request, head and level from our own dispatch. What the report says of
them instead is counted and logged, and changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from bot import callback_token, upstream
from bot.domain import contradiction
from bot.domain.allowlist_entry import Level
from bot.domain.reading import as_commit
from bot.domain.wire import SELF_TRIGGERED
from bot.errors import Rejected
from bot.store import allowlists, dispatches, jobs, secrets

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.domain.allowlist import Allowlist, Entry
    from bot.domain.envelope import Envelope
    from bot.domain.wire import Report
    from bot.oidc import Claims
    from bot.settings import Settings
    from bot.store import Transaction

Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Given:
    """One report and who sent it."""

    claims: Claims
    report: Report


@dataclass(frozen=True, kw_only=True)
class Known:
    """What our own tables say of some reports, looked up once for all of them."""

    settings: Settings
    allowlist: Allowlist | None
    dispatches: dict[str, Row]
    secret: bytes  # callback tokens are made with it
    now: int


class Named(NamedTuple):
    """A commit that a backend says it ran on."""

    backend: str  # case folded
    commit: str


@dataclass(frozen=True, kw_only=True)
class Job:
    """A job as far as it is trusted, and what is said of it."""

    row: Row  # its identifying and trusted columns
    report: Report
    dispatched_at: int | None = None
    confirm: bool = False  # GitHub's own word is needed
    caller: str = ""  # whose share of reports it uses up
    limit: int | None = None  # reports a minute; None: not counted
    measured: Envelope | None = None  # told by a relay, which measured the times

    @property
    def key(self) -> str:
        """What makes two reports speak of the same attempt of the same job."""
        key: str = self.row["job_key"]
        return key

    @property
    def names(self) -> Named | None:
        """The backend and its commit, while nothing but the backend's word says that upstream has it; else None."""
        commit = self.row["head_sha"] if "unverified" in self.row["flags"] else None
        return Named(self.row["downstream_repo"].casefold(), commit) if commit else None


async def look_up(tx: Transaction, settings: Settings, given: Sequence[Given]) -> Known:
    """Read what `admit` needs to judge these reports."""
    wanted = {dispatches.identity(one.report.delivery_id, one.claims.repository) for one in given}
    return Known(
        settings=settings,
        allowlist=await allowlists.in_force(tx),
        dispatches=await dispatches.by_id(tx, wanted),
        secret=await secrets.key(tx, "callback"),
        now=tx.now,
    )


def admit(known: Known, one: Given) -> Job | None:
    """Return the job a report may speak of, None when unlisted callers are ignored; raises Rejected."""
    entry = listed(known.allowlist, known.settings, one.claims)
    if entry is None:
        return None
    dispatch = known.dispatches.get(dispatches.identity(one.report.delivery_id, entry.repo))
    limit = entry.rate_limit or known.settings.rate_limit_per_min
    if dispatch is None or dispatch["dispatched_at"] is None:  # nobody can know of what never left
        row = _of_its_own(known, entry, one)
        return Job(row=row, report=one.report, caller=entry.key, limit=limit)
    _asked_by_us(known, entry, dispatch, one.report)
    row = _told(dispatch, one)
    return Job(
        row=row,
        report=one.report,
        dispatched_at=dispatch["dispatched_at"],
        confirm=dispatch["level"] >= Level.L4 and dispatch["pr_number"] is not None and entry.confirm,
        caller=entry.key,
        limit=limit,
    )


def relayed(settings: Settings, envelope: Envelope) -> Job:
    """Return the job an outside relay speaks of: no dispatch and no allowlist entry stands behind it."""
    report = envelope.report
    row = {
        "downstream_repo": envelope.repository,
        "upstream_repo": upstream.named(settings, envelope.upstream_repo),
        "pr_number": envelope.pr_number,
        "head_sha": envelope.head_sha,
        "delivery_id": report.delivery_id,
        "downstream_repo_level": envelope.level,
        "event_type": report.event_type or "pull_request",
        "source": "relay",
        "flags": {"unverified": True} if report.event_type in SELF_TRIGGERED else {},
    }
    return Job(
        row=_identified(row, report, report.run_id, report.run_attempt), report=report, measured=envelope
    )


def listed(allowlist: Allowlist | None, settings: Settings, claims: Claims) -> Entry | None:
    """Return the caller's allowlist entry, None when unlisted callers are ignored; raises Rejected."""
    if allowlist is None:
        detail = "no valid allowlist has been read yet: send this again later"
        raise Rejected(503, "no_allowlist", detail, headers={"Retry-After": "10"})
    entry = allowlist.find(claims.repository)
    if entry is None or entry.level < Level.L2:
        if settings.unlisted == "ignore":
            return None
        detail = f"{claims.repository} may not report: it must be in the allowlist at L2 or above"
        raise Rejected(403, "not_listed", detail)
    pinned = entry.repository_id is not None and not claims.assigned
    if pinned and str(entry.repository_id) != claims.repository_id:
        detail = f"{claims.repository} is not the repository the allowlist pins by repository_id"
        raise Rejected(403, "forbidden", detail)
    if claims.key_id is not None and entry.static_key != "allowed":
        detail = f"a static key is good for L2 only, {entry.repo} is at L{entry.level}: use OIDC, or see `static_key`"
        raise Rejected(403, "forbidden", detail)
    return entry


def _of_its_own(known: Known, entry: Entry, one: Given) -> Row:
    """Return the columns of a nightly or periodic job, which no dispatch asked for."""
    report = one.report
    if report.event_type not in SELF_TRIGGERED:
        detail = f"delivery {report.delivery_id[:100]} was never dispatched to {entry.repo}"
        raise Rejected(404, "unknown_dispatch", detail)
    if "nightly" not in entry.events:
        detail = (
            f"{entry.repo} sends no {report.event_type} reports: add nightly to its events in the allowlist"
        )
        raise Rejected(403, "forbidden", detail)
    commit = as_commit(report.delivery_id)
    if commit is None or report.status != "completed":
        what = (
            "delivery_id must be the upstream commit"
            if commit is None
            else "workflow.status must be completed"
        )
        raise Rejected(400, "invalid_report", f"{what} in a {report.event_type} report")
    row = {
        "downstream_repo": entry.repo,
        "upstream_repo": known.settings.upstream_repo[0],
        "head_sha": commit,
        "delivery_id": commit,
        "downstream_repo_level": int(entry.level),
        "event_type": report.event_type,
        "source": "callback",
        "flags": {"unverified": True},
    }
    return _signed(row, one)


def _asked_by_us(known: Known, entry: Entry, dispatch: Row, report: Report) -> None:
    """Check the callback token: it may be absent where it is optional, but never wrong."""
    if report.callback_token is None and entry.callback_token == "optional":  # noqa: S105 - a mode
        return
    if not callback_token.belongs(report.callback_token, dispatch, known.secret, now=known.now):
        what = "is wrong" if report.callback_token else "is missing"
        detail = f"callback_token {what}: send back client_payload.callback_token of this dispatch"
        raise Rejected(403, "forbidden", detail)


def _told(dispatch: Row, one: Given) -> Row:
    """Return the columns of a job that a dispatch of ours asked for."""
    row = {
        "dispatch_id": dispatch["id"],
        "downstream_repo": dispatch["backend"],
        "upstream_repo": dispatch["upstream_repo"],
        "pr_number": dispatch["pr_number"],
        "head_sha": dispatch["head_sha"],
        "delivery_id": dispatch["delivery_id"],
        "downstream_repo_level": dispatch["level"],
        "event_type": dispatch["event_type"],
        "source": "callback",
        "flags": contradiction.with_dispatch(dispatch, one.report) | _unproven(one),
    }
    row = _signed(row, one)
    started = dispatch.get("run_id")  # known where the dispatch itself started the run
    if started is not None and str(started) != row["run_id"]:
        detail = f"this dispatch started run {started}, the report comes from run {row['run_id'][:100]}"
        raise Rejected(403, "forbidden", detail)
    return row


def _unproven(one: Given) -> Row:
    """Return a flag for each proof that was not asked for here, but may be at a higher level."""
    lacking = {
        "no_callback_token": one.report.callback_token is None,
        "static_key": one.claims.key_id is not None,
    }
    return {name: True for name, lacks in lacking.items() if lacks}


def _signed(row: Row, one: Given) -> Row:
    """Return the row with the caller's own run: the token's, where it names one."""
    claims, report = one.claims, one.report
    signed = {"run_id": claims.run_id, "run_attempt": claims.run_attempt}
    said = {"run_id": report.run_id, "run_attempt": report.run_attempt}
    wrong = {name for name, value in signed.items() if value is not None and value != said[name]}
    row = row | {
        "reporter_check_run_id": claims.check_run_id,
        "flags": row["flags"] | contradiction.flagged(wrong),
    }
    return _identified(row, report, claims.run_id or report.run_id, claims.run_attempt or report.run_attempt)


def _identified(row: Row, report: Report, run_id: str, run_attempt: int) -> Row:
    named = row | {
        "workflow_name": report.workflow_name,
        "job_name": report.job_name,
        "run_id": run_id,
        "run_attempt": run_attempt,
    }
    return named | {"job_key": jobs.job_key(named)}
