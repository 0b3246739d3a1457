"""Addresses that take reports: of backends' CIs, and of outside relays."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from bot.oot.reports import bodies, endpoints
from bot.web import operations as op
from bot.web.bodies import post_routes
from bot.web.view import Endpoint

if TYPE_CHECKING:
    from aiohttp.typedefs import Handler

MIB = 1024 * 1024
BACKEND = op.Caller("backend", "an OpenID Connect token of the backend's CI, or a static key")
RELAY, RELAY_OF_HUD = (
    op.Caller(name, "the setting RELAY_TOKEN; without one the endpoint is disabled", header=header)
    for name, header in zip(("relay", "relayOfHud"), endpoints.RELAY_HEADERS, strict=True)
)

REPORT: dict[str, Any] = {
    "event_type": "pull_request",
    "delivery_id": "72d3162e-cc78-11e3-81ab-4c9367dc0958",
    "callback_token": "client_payload.callback_token of the dispatch",
    "payload": {
        "repository": {"full_name": "example-org/project"},
        "pull_request": {"number": 7, "head": {"sha": "6dcb09b5b57875f334f61aebed695e2e4193db5e"}},
    },
    "workflow": {
        "status": "completed",
        "conclusion": "failure",
        "name": "Device CI",
        "job_name": "build",
        "run_id": "4455",
        "run_attempt": 1,
        "url": "https://ci.example/4455",
        "test_results": {"passed": 8430, "failed": 1, "skipped": 20},
        "failed_tests": [{"name": "test_add", "file": "test_ops.py", "line": 12, "message": "expected 1"}],
        "environment": {"driver": "24.1"},
    },
}
ENVELOPE: dict[str, Any] = {
    "trusted": {
        "verified_repo": "example-org/backend",
        "downstream_repo_level": "L2",
        "ci_metrics": {"queue_time": 12.5, "execution_time": None},
    },
    "untrusted": {"callback_payload": REPORT},
}

UNKNOWN_CALLER: tuple[op.Refusal, ...] = (
    (401, "invalid_token", "the token or key is missing, invalid, expired or meant for others"),
    (403, "not_listed", "the caller is not in the allowlist, or only listens (L1)"),
    (403, "forbidden", "another identity, claim, callback token or run than agreed"),
    (429, "rate_limited", "too many reports, or too many refusals, in a minute"),
    (503, "issuer_unavailable", "the issuer's keys cannot be had now, and none known is the token's"),
    (503, "no_allowlist", "no valid allowlist has been read yet"),
)
MALFORMED: op.Refusal = (400, "invalid_report", "a field is missing or wrong; `detail` names it")
OF_A_JOB: tuple[op.Refusal, ...] = (
    (409, "conflict", "the job has ended otherwise, or before it began; the first report stands"),
    (413, "too_many_jobs", "the dispatch, or the commit nobody dispatched, has as many jobs as it may"),
)

_report = partial(
    op.Operation,
    summary="Report on one job",
    answer=bodies.Accepted,
    topic=op.RECEIVING,
    callers=[BACKEND],
    description="Backend, run and attempt are believed as the token names them; pull request, commit and level as the "
    "dispatch does. The same report again is answered with `duplicate` and changes nothing.",
    body=op.Content(
        bodies.Report, f"at most {endpoints.LIMIT // MIB} MiB; unknown fields are ignored", example=REPORT
    ),
    refusals=[
        MALFORMED,
        *UNKNOWN_CALLER,
        (404, "unknown_dispatch", "that delivery was never dispatched to this backend"),
        *OF_A_JOB,
        *op.SENDING,
    ],
)
RELAYED: list[op.Refusal] = [
    MALFORMED,
    (401, "invalid_token", "the token is missing or wrong"),
    (404, "not_found", "the endpoint is disabled: no RELAY_TOKEN is set"),
    *OF_A_JOB,
    (429, "rate_limited", "too many refusals in a minute"),
    *op.SENDING,
]
ONCE: op.Refusal = (
    409,
    "duplicate",
    "the job's end was stored before, as the HUD answers: nothing was changed",
)
_relay = partial(
    op.Operation,
    summary="Pass on a report",
    answer=bodies.Accepted,
    topic=op.RECEIVING,
    callers=[RELAY, RELAY_OF_HUD],
    description="For a relay that dispatches by itself. Identity, level and times are taken from it. Such results "
    "are shown on pages and in JSON, never on a pull request.",
    body=op.Content(bodies.Envelope, f"at most {endpoints.LIMIT // MIB} MiB", example=ENVELOPE),
    named=[bodies.Echoed],
)
_report_many = op.Operation(
    "POST /api/oot/callback/batch",
    "reportMany",
    "Report on many jobs",
    bodies.BatchAnswer,
    topic=op.RECEIVING,
    callers=[BACKEND],
    description=f"1 to {bodies.MOST_REPORTS} reports in one transaction. Each is answered as it would have been "
    "alone, in order; what is wrong with the caller refuses all.",
    body=op.Content(
        bodies.Batch, f"at most {endpoints.BATCH_LIMIT // MIB} MiB", example={"reports": [REPORT]}
    ),
    named=[bodies.AcceptedOfBatch, bodies.RefusedOfBatch],
    refusals=[MALFORMED, *UNKNOWN_CALLER, *op.SENDING],
)


def _endpoints(path: str, handler: Handler, operation: op.Operation) -> list[Endpoint]:
    """Return an address that is posted to: some write it with a slash at the end."""
    first, *others = post_routes(path, handler)
    return [Endpoint(first, operation), *map(Endpoint, others)]


def _report_at(path: str, name: str) -> list[Endpoint]:
    return _endpoints(path, endpoints.callback, _report(f"POST {path}", name))


def _relay_at(path: str, name: str, *also: op.Refusal) -> list[Endpoint]:
    return _endpoints(path, endpoints.results, _relay(f"POST {path}", name, refusals=[*RELAYED, *also]))


VIEWS = (
    *_report_at("/api/oot/callback", "report"),
    *_endpoints("/api/oot/callback/batch", endpoints.callback_batch, _report_many),
    *_report_at("/github/callback", "reportAtShortAddress"),
    *_relay_at("/api/oot/results", "relay"),
    *_relay_at("/api/crcr/results", "relayAtCrcrAddress", ONCE),
    *_relay_at("/crcr/results", "relayAtShortAddress", ONCE),
)
