"""Authorization of reports: a caller and a report -> the job as far as it can be trusted, or a refusal."""

from __future__ import annotations

import functools
import hmac
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import jwt

from bot.core.errors import Rejected
from bot.core.json_fields import as_commit
from bot.db import installation
from bot.ingest.repositories import canonical_name
from bot.oot.allowlist import versions
from bot.oot.allowlist.entry import Level
from bot.oot.results import dispatches, jobs
from bot.oot.results.tables import (
    SELF_TRIGGERED,
    JobDispatch,
    JobFlags,
    JobIdentity,
    JobName,
    JobOrigin,
    JobRun,
    JobSubject,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.oot.allowlist.allowlist import Allowlist
    from bot.oot.allowlist.entry import Entry
    from bot.oot.reports.oidc import Claims
    from bot.oot.reports.report import CheckedEnvelope, CheckedReport
    from bot.oot.results.tables import DispatchRow, JobAttempt, JobDurations

LIFE = 35 * 24 * 3600  # seconds: as long as GitHub lets a workflow run live
ALGORITHM = "HS256"
RECENT = 1_000  # tokens that are remembered: every job of a run sends the same one
Flags = dict[str, Any]  # of a job: JSON
MISMATCH_ENDING = "_mismatch"  # of the flags
NO_COMMIT = "0" * 40  # GitHub's SHA of a deleted ref, which dispatches have none for


class Origin(JobDispatch, JobSubject, JobOrigin, JobFlags):
    """Columns of a job as its dispatch, the allowlist or a relay vouches for them."""


class TrustedColumns(JobIdentity, Origin, JobName, JobRun):
    """Columns that identify a job and say where it belongs."""


@dataclass(frozen=True, kw_only=True)
class Submission:
    """One report and who sent it."""

    claims: Claims
    report: CheckedReport


@dataclass(frozen=True, kw_only=True)
class ReportLookup:
    """What our own tables know about some reports, read once for all of them."""

    settings: Settings
    allowlist: Allowlist | None
    dispatches: dict[str, DispatchRow]
    secret: bytes  # callback tokens are made with it
    now: int


class ClaimedCommit(NamedTuple):
    """A commit that a backend claims to have run on."""

    backend: str  # case folded
    commit: str


def make_token(dispatch: Mapping[str, Any], key: bytes) -> str:
    """Return the dispatch's token; the same dispatch always has the same one."""
    issued = dispatch["created_at"] // 1000
    return _sign_token(key, iat=issued, exp=issued + LIFE, **_bound_claims(dispatch))


def token_belongs(token: str | None, dispatch: Mapping[str, Any], key: bytes, *, now: int) -> bool:
    """Return whether the token was made for this very dispatch and has not expired; `now` in epoch milliseconds."""
    if not token:
        return False
    if hmac.compare_digest(token.encode("utf-8", "replace"), make_token(dispatch, key).encode()):
        return bool(dispatch["created_at"] // 1000 + LIFE > now / 1000)
    try:  # one that an earlier version wrote differently
        claims = jwt.decode(
            token, key, algorithms=[ALGORITHM], options={"verify_exp": False, "verify_iat": False}
        )
    except (jwt.PyJWTError, ValueError, RecursionError):
        return False
    same = all(claims.get(name) == value for name, value in _bound_claims(dispatch).items())
    return same and isinstance(claims.get("exp"), int) and claims["exp"] > now / 1000


def dispatch_mismatches(dispatch: DispatchRow, report: CheckedReport) -> Flags:
    """Return a flag for every wrong statement about the dispatch."""
    echo = report.echo
    claimed = {
        "backend": (_folded(report.backend), dispatch["backend_key"]),
        "level": (_level(report.level), dispatch["level"]),
        "event_type": (report.event_type or None, dispatch["event_type"]),
        "upstream_repo": (_folded(echo.upstream_repo), dispatch["upstream_repo"].casefold()),
        "pr_number": (echo.pr_number, dispatch["pr_number"]),
        "head_sha": (echo.head_sha, dispatch["head_sha"] or NO_COMMIT),
        "labels": (echo.labels, frozenset(dispatch["labels"] or ())),
    }
    return flag_fields(name for name, (claim, ours) in claimed.items() if claim is not None and claim != ours)


def flag_fields(names: Iterable[str]) -> Flags:
    """Return the flags for fields that are wrong."""
    return {f"{name}{MISMATCH_ENDING}": True for name in names}


def mismatched_fields(flags: Flags) -> list[str]:
    """Return the fields that were wrong, according to a row's flags."""
    return sorted(name.removesuffix(MISMATCH_ENDING) for name in flags if name.endswith(MISMATCH_ENDING))


@dataclass(frozen=True, kw_only=True)
class TrustedJob:
    """What is trusted of a job, and the report on it."""

    row: TrustedColumns
    report: CheckedReport
    dispatched_at: int | None = None
    confirm: bool = False  # GitHub's own word is needed
    caller: str = ""  # whose quota of reports it counts against
    limit: int | None = None  # reports a minute; None: not counted
    byte_limit: int | None = None  # of failed tests an hour; None: not counted
    measured: JobDurations | None = None  # by a relay
    first_stands: bool = False  # a contradiction is answered like a repetition

    @property
    def key(self) -> str:
        """The same for all reports on one attempt of one job."""
        return self.row["job_key"]

    @property
    def names(self) -> ClaimedCommit | None:
        """The backend and its commit as long as only the backend claims that upstream has it."""
        commit = self.row["head_sha"] if "unverified" in self.row["flags"] else None
        return ClaimedCommit(self.row["downstream_repo"].casefold(), commit) if commit else None

    @property
    def unasked(self) -> ClaimedCommit | None:
        """The backend and its commit for size quotas, or the id that the backend gave if the commit is unknown."""
        if "no_commit" in self.row["flags"]:
            return ClaimedCommit(self.row["downstream_repo"].casefold(), self.row["delivery_id"])
        return self.names


async def look_up_reports(
    tx: Transaction, settings: Settings, submissions: Sequence[Submission]
) -> ReportLookup:
    """Read what `admit` needs to judge these reports."""
    wanted = {dispatches.dispatch_id(sent.report.delivery_id, sent.claims.repository) for sent in submissions}
    return ReportLookup(
        settings=settings,
        allowlist=await versions.read_in_force(tx),
        dispatches=await dispatches.get_by_id(tx, wanted),
        secret=await installation.random_key(tx, "callback"),
        now=tx.now,
    )


def admit_report(lookup: ReportLookup, submission: Submission) -> TrustedJob | None:
    """Return the job a report is about, None when unlisted callers are ignored; raises Rejected."""
    entry = find_entry(lookup.allowlist, lookup.settings, submission.claims)
    if entry is None:
        return None
    dispatch = lookup.dispatches.get(dispatches.dispatch_id(submission.report.delivery_id, entry.repo))
    limit = entry.rate_limit or lookup.settings.rate_limit_per_min
    byte_limit = lookup.settings.report_mb_per_hour * 1_000_000
    if dispatch is None or dispatch["dispatched_at"] is None:  # an unsent delivery's id cannot be known
        row = _self_triggered_columns(lookup, entry, submission)
        stands = lookup.settings.reports == "lenient"
        return TrustedJob(
            row=row,
            report=submission.report,
            caller=entry.key,
            limit=limit,
            byte_limit=byte_limit,
            first_stands=stands,
        )
    check_callback_token(entry, dispatch, submission.report, key=lookup.secret, now=lookup.now)
    row = _dispatched_columns(dispatch, submission)
    return TrustedJob(
        row=row,
        report=submission.report,
        dispatched_at=dispatch["dispatched_at"],
        confirm=dispatch["level"] >= Level.L4 and dispatch["pr_number"] is not None and entry.confirm,
        caller=entry.key,
        limit=limit,
        byte_limit=byte_limit,
    )


def admit_relayed(settings: Settings, envelope: CheckedEnvelope) -> TrustedJob:
    """Return the job an outside relay reports on: there is no dispatch and no allowlist entry."""
    report, flags = envelope.report, {}
    if report.event_type in SELF_TRIGGERED:
        flags = {"no_commit" if envelope.subject["head_sha"] is None else "unverified": True}
    origin: Origin = {
        "dispatch_id": None,
        **envelope.subject,
        "upstream_repo": canonical_name(settings, envelope.subject["upstream_repo"]),
        "downstream_repo_level": envelope.level,
        "event_type": report.event_type or "pull_request",
        "source": "relay",
        "flags": flags,
    }
    row = _identity_columns(origin, report, report.job)
    return TrustedJob(row=row, report=report, measured=envelope.measured)


def find_entry(allowlist: Allowlist | None, settings: Settings, claims: Claims) -> Entry | None:
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


def check_own_runs(entry: Entry, claims: Claims, what: str) -> None:
    """Raise Rejected if a caller may not report runs that were not dispatched.

    A static key proves neither run nor commit: the entry has to say that the backend reports its own runs.
    """
    if entry.nightly == "refused":
        detail = f"{what} of {entry.repo} are not taken: the allowlist says nightly: refused"
        raise Rejected(403, "forbidden", detail)
    if claims.key_id is not None and "nightly" not in entry.events:
        detail = f"{what} with a static key are not taken: use OIDC, or have `nightly` added to {entry.repo}'s events"
        raise Rejected(403, "forbidden", detail)


def check_callback_token(
    entry: Entry, dispatch: Mapping[str, Any], report: CheckedReport, *, key: bytes, now: int
) -> None:
    """Check the callback token: it may be absent where it is optional, but never wrong."""
    if report.callback_token is None and entry.callback_token == "optional":  # noqa: S105 - a mode
        return
    if not token_belongs(report.callback_token, dispatch, key, now=now):
        what = "is wrong" if report.callback_token else "is missing"
        detail = f"callback_token {what}: send back client_payload.callback_token of this dispatch"
        raise Rejected(403, "forbidden", detail)


@functools.lru_cache(RECENT)
def _sign_token(key: bytes, **claims: Any) -> str:
    return jwt.encode(claims, key, algorithm=ALGORITHM)


def _bound_claims(dispatch: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "jti": dispatch["token_jti"],
        "delivery": dispatch["delivery_id"],
        "backend": dispatch["backend_key"],
        "pr": dispatch["pr_number"],
        "head": dispatch["head_sha"],
    }


def _folded(claim: Any) -> Any:
    return claim.casefold() if isinstance(claim, str) else claim


def _level(claim: Any) -> Any:
    """Return a level as we count it, also out of "L4"."""
    digits = claim.upper().removeprefix("L") if isinstance(claim, str) else ""
    return int(digits) if digits in {"1", "2", "3", "4"} else claim


def _self_triggered_columns(lookup: ReportLookup, entry: Entry, submission: Submission) -> TrustedColumns:
    """Return the columns of a nightly or periodic job, which has no dispatch."""
    report = submission.report
    if report.event_type not in SELF_TRIGGERED:
        detail = f"delivery {report.delivery_id[:100]} was never dispatched to {entry.repo}"
        raise Rejected(404, "unknown_dispatch", detail)
    check_own_runs(entry, submission.claims, f"{report.event_type} reports")
    commit = as_commit(report.delivery_id)
    named = commit is not None or lookup.settings.reports == "lenient"
    if not named or report.job["status"] != "completed":
        what = "delivery_id must be the upstream commit" if not named else "workflow.status must be completed"
        raise Rejected(400, "invalid_report", f"{what} in a {report.event_type} report")
    origin: Origin = {
        "dispatch_id": None,
        "downstream_repo": entry.repo,
        "upstream_repo": lookup.settings.upstream_repo[0],
        "pr_number": None,
        "head_sha": commit,
        "delivery_id": commit or report.delivery_id,
        "downstream_repo_level": int(entry.level),
        "event_type": report.event_type,
        "source": "callback",
        "flags": {"unverified" if commit else "no_commit": True},
    }
    return _signed_columns(origin, submission)


def _dispatched_columns(dispatch: DispatchRow, submission: Submission) -> TrustedColumns:
    """Return the columns of a job of one of our dispatches."""
    origin: Origin = {
        "dispatch_id": dispatch["id"],
        "downstream_repo": dispatch["backend"],
        "upstream_repo": dispatch["upstream_repo"],
        "pr_number": dispatch["pr_number"],
        "head_sha": dispatch["head_sha"],
        "delivery_id": dispatch["delivery_id"],
        "downstream_repo_level": dispatch["level"],
        "event_type": dispatch["event_type"],
        "source": "callback",
        "flags": dispatch_mismatches(dispatch, submission.report) | _unproven(submission),
    }
    row = _signed_columns(origin, submission)
    started = dispatch["run_id"]  # known where the dispatch itself started the run
    if started is not None and started != row["run_id"]:
        detail = f"this dispatch started run {started}, the report comes from run {row['run_id'][:100]}"
        raise Rejected(403, "forbidden", detail)
    return row


def _unproven(submission: Submission) -> Flags:
    """Return a flag for each missing proof that a higher level may require."""
    lacking = {
        "no_callback_token": submission.report.callback_token is None,
        "static_key": submission.claims.key_id is not None,
    }
    return {name: True for name, lacks in lacking.items() if lacks}


def _signed_columns(origin: Origin, submission: Submission) -> TrustedColumns:
    """Return the columns with the caller's run, which is the token's if it names one."""
    claims, report = submission.claims, submission.report
    job = report.job
    run: JobAttempt = {
        "run_id": claims.run_id or job["run_id"],
        "run_attempt": claims.run_attempt or job["run_attempt"],
    }
    signed = {"run_id": claims.run_id, "run_attempt": claims.run_attempt}
    wrong = {name for name, value in signed.items() if value is not None and value != job.get(name)}
    row = _identity_columns(origin, report, run)
    flags = row["flags"] | flag_fields(wrong)
    return {**row, "reporter_check_run_id": claims.check_run_id, "flags": flags}


def _identity_columns(origin: Origin, report: CheckedReport, run: JobAttempt) -> TrustedColumns:
    attempt = {"run_id": run["run_id"], "run_attempt": run["run_attempt"]}
    names = {"workflow_name": report.job["workflow_name"], "job_name": report.job["job_name"]}
    return {
        **origin,
        "job_key": jobs.job_key({**origin, **attempt, **names}),
        "workflow_name": report.job["workflow_name"],
        "job_name": report.job["job_name"],
        "run_id": run["run_id"],
        "run_attempt": run["run_attempt"],
        "reporter_check_run_id": None,
    }
