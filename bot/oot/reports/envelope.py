"""An outside relay's envelope: what it vouches for, and the report as a backend sent it.

Identity, level and measured times are the relay's. The pull request comes from the report's echo, which is not
verified, so it must at least be well formed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from bot.core.json_fields import FULL_NAME, as_commit
from bot.oot.reports import bodies, lenient
from bot.oot.reports.bodies import LEVELS, MOST_NUMBER
from bot.oot.reports.report import Malformed, parse_report

if TYPE_CHECKING:
    from collections.abc import Callable

    from bot.oot.reports.report import Report
    from bot.oot.results.tables import JobDurations, JobSubject

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Envelope:
    """One report an outside relay passes on."""

    subject: JobSubject
    level: int
    measured: JobDurations  # by the relay; None: not measured
    report: Report


class _LenientTrusted(msgspec.Struct):
    verified_repo: Any = None
    downstream_repo_level: Any = None
    ci_metrics: Any = None


class _LenientEnvelope(msgspec.Struct):
    trusted: _LenientTrusted
    untrusted: bodies.Untrusted


LEAST_LEVEL = 2  # of a backend that may report
MOST_SECONDS = 10**9
_envelope = msgspec.json.Decoder(bodies.Envelope)
_lenient_envelope = msgspec.json.Decoder(_LenientEnvelope)
_batch = msgspec.json.Decoder(bodies.Batch)


def parse_envelope(body: bytes, *, upstream: str | None = None) -> Envelope:
    """Read an envelope and the report in it; raises Malformed naming the field that is missing or wrong.

    With `upstream` it is read leniently: a payload that is missing or odd is flagged, and the report is about that
    repository.
    """
    if upstream is not None:
        return _leniently(body, upstream)
    envelope = _decode(_envelope, body)
    trusted = envelope.trusted
    if not FULL_NAME.fullmatch(trusted.verified_repo):
        raise Malformed("trusted.verified_repo must be owner/name")
    if trusted.downstream_repo_level not in LEVELS:
        raise Malformed("trusted.downstream_repo_level must be L1, L2, L3 or L4")
    report = parse_report(bytes(envelope.untrusted.callback_payload))
    measured = trusted.ci_metrics or bodies.Metrics()
    return Envelope(
        subject={
            "downstream_repo": trusted.verified_repo,
            "upstream_repo": _upstream(report),
            "pr_number": _number(report),
            "head_sha": _sha(report),
            "delivery_id": report.delivery_id,
        },
        level=LEVELS[trusted.downstream_repo_level],
        measured={"queue_time": measured.queue_time, "execution_time": measured.execution_time},
        report=report,
    )


def _leniently(body: bytes, upstream: str) -> Envelope:
    """Read an envelope of which only the report and who it is about have to be there."""
    envelope = _decode(_lenient_envelope, body, leniently=True)
    trusted = envelope.trusted
    if not isinstance(trusted.verified_repo, str) or not FULL_NAME.fullmatch(trusted.verified_repo):
        raise Malformed("trusted.verified_repo must be owner/name")
    report = parse_report(bytes(envelope.untrusted.callback_payload), leniently=True)
    measured = trusted.ci_metrics if isinstance(trusted.ci_metrics, dict) else {}
    level = trusted.downstream_repo_level
    return Envelope(
        subject={
            "downstream_repo": trusted.verified_repo,
            "upstream_repo": _or_flagged(_upstream, report, upstream),
            "pr_number": _or_flagged(_number, report, None),
            "head_sha": _or_flagged(_sha, report, None),
            "delivery_id": report.delivery_id,
        },
        level=LEVELS.get(level, LEAST_LEVEL) if isinstance(level, str | int) else LEAST_LEVEL,
        measured={
            "queue_time": lenient.number(measured.get("queue_time"), 0, MOST_SECONDS),
            "execution_time": lenient.number(measured.get("execution_time"), 0, MOST_SECONDS),
        },
        report=report,
    )


def _or_flagged(read: Callable[[Report], T], report: Report, instead: T) -> T:
    try:
        return read(report)
    except Malformed:
        report.flags["payload_dropped"] = True
        return instead


def split_batch(body: bytes) -> list[bytes]:
    """Return the reports of a batch, unread; raises Malformed unless it holds 1 to 500."""
    return [bytes(report) for report in _decode(_batch, body).reports]


def _decode(decoder: Any, body: bytes, *, leniently: bool = False) -> Any:
    try:
        return lenient.decode(decoder, body) if leniently else decoder.decode(body)
    except msgspec.DecodeError as error:
        raise Malformed(str(error).replace("$.", "")) from None
    except (RecursionError, UnicodeDecodeError):
        raise Malformed("the body is not readable JSON") from None


def _upstream(report: Report) -> str:
    name = report.echo.upstream_repo
    if not isinstance(name, str) or not FULL_NAME.fullmatch(name):
        raise Malformed("callback_payload.payload.repository.full_name must be owner/name")
    return name


def _number(report: Report) -> int | None:
    number = report.echo.pr_number
    if number is None:
        return None
    if not isinstance(number, int) or isinstance(number, bool) or not 0 < number <= MOST_NUMBER:
        raise Malformed("callback_payload.payload.pull_request.number must be a whole number from 1")
    return number


def _sha(report: Report) -> str | None:
    """Return the report's commit; in a nightly report that is the delivery_id."""
    if report.echo.head_sha is None:
        return as_commit(report.delivery_id)
    if (found := as_commit(report.echo.head_sha)) is None:
        raise Malformed("callback_payload.payload names a commit that is not 40 or 64 hexadecimal digits")
    return found
