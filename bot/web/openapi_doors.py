"""What can be sent to the bot? The doors for GitHub, for backends' CIs and for outside relays, described."""

from __future__ import annotations

from bot.domain.envelope import MOST_REPORTS
from bot.web import callback, parameters, webhooks
from bot.web.openapi_parts import (
    BACKEND,
    GITHUB,
    OK,
    RELAY,
    SENDING,
    TEXT,
    WHOLE,
    Refusal,
    Schema,
    answer,
    body,
    in_header,
    listed,
    matching,
    members,
    one_of,
    operation,
    ref,
)

TAG = "Doors"
MIB = 1024 * 1024

REPORT: Schema = {
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
ENVELOPE: Schema = {
    "trusted": {
        "verified_repo": "example-org/backend",
        "downstream_repo_level": "L2",
        "ci_metrics": {"queue_time": 12.5, "execution_time": None},
    },
    "untrusted": {"callback_payload": REPORT},
}
WEBHOOK: Schema = {
    "action": "opened",
    "issue": {"id": 7, "number": 1, "title": "It is slow", "updated_at": "2026-01-31T12:00:00Z"},
    "repository": {"id": 5, "full_name": "example-org/project"},
}

TAKEN = members(
    {"ok": OK, "status": one_of(("in_progress", "completed", "ignored")), "duplicate": OK},
    optional=["duplicate"],
)
UNKNOWN_CALLER: tuple[Refusal, ...] = (
    (401, "invalid_token", "the token or key is missing, invalid, expired or meant for others"),
    (403, "not_listed", "the caller is not in the allowlist, or only listens (L1)"),
    (403, "forbidden", "another identity, claim, callback token or run than agreed"),
    (429, "rate_limited", "too many reports, or too many refusals, in a minute"),
    (503, "issuer_unavailable", "the issuer's keys cannot be had now, and none known is the token's"),
    (503, "no_allowlist", "no valid allowlist has been read yet"),
)
TOO_MANY: Refusal = (413, "too_many_jobs", "the dispatch has as many jobs as it may")
MALFORMED: Refusal = (400, "invalid_report", "a field is missing or wrong; `detail` names it")
CONFLICT: Refusal = (
    409,
    "conflict",
    "the job has ended otherwise, or before it began; the first report stands",
)


def paths() -> Schema:
    """Return the doors by address and method."""
    return {
        "/api/github/webhooks": {"post": _webhook()},
        "/api/oot/callback": {"post": _report("report")},
        "/api/oot/callback/batch": {"post": _batch()},
        "/github/callback": {"post": _report("reportAtShortAddress")},
        "/api/oot/results": {"post": _relayed()},
    }


def _webhook() -> Schema:
    accepted = members({"ok": OK, "delivery": TEXT, "duplicate": OK}, optional=["duplicate"])
    return operation(
        "deliver",
        "Deliver a webhook",
        tag=TAG,
        who=GITHUB,
        more="For GitHub. The delivery is stored before the answer; what follows from it comes later. What is meant "
        "for another App is stored and not handled.",
        parameters=[
            in_header("X-GitHub-Event", matching(webhooks.EVENT.pattern), "name of the event"),
            in_header("X-GitHub-Delivery", matching(parameters.IDENTIFIER.pattern), "GUID of the delivery"),
            in_header(
                "X-GitHub-Hook-Installation-Target-ID",
                matching("[0-9]{1,18}"),
                "id of the App",
                required=False,
            ),
        ],
        body=body(
            {"type": "object"},
            WEBHOOK,
            f"as GitHub documents it for the event, at most {webhooks.LIMIT // MIB} MiB",
        ),
        answers={202: answer("Stored, or stored already (`duplicate`)", accepted)},
        refusals=[
            (400, "invalid_header", "a header of the delivery is missing or malformed"),
            (400, "invalid_json", "the body is not a JSON object"),
            (401, "invalid_signature", "`X-Hub-Signature-256` is missing or wrong"),
            (415, "unsupported_media_type", "the body is a form"),
            *SENDING,
        ],
    )


def _report(name: str) -> Schema:
    return operation(
        name,
        "Report on one job",
        tag=TAG,
        who=BACKEND,
        more="Backend, run and attempt are believed as the token names them; pull request, commit and level as the "
        "dispatch does. The same report again is answered with `duplicate` and changes nothing.",
        body=body(ref("Report"), REPORT, f"at most {callback.LIMIT // MIB} MiB; unknown fields are ignored"),
        answers={200: answer("Stored, or stored already (`duplicate`)", TAKEN)},
        refusals=[
            MALFORMED,
            *UNKNOWN_CALLER,
            (404, "unknown_dispatch", "that delivery was never dispatched to this backend"),
            CONFLICT,
            TOO_MANY,
            *SENDING,
        ],
    )


def _batch() -> Schema:
    alone = {"code": WHOLE | {"description": "the status it would have had alone"}}
    said = members(
        alone | {"ok": OK} | {name: TAKEN["properties"][name] for name in ("status", "duplicate")},
        optional=["duplicate"],
    )
    refused = members(
        alone | {"ok": {"const": False}, "error": TEXT, "detail": TEXT, "retry_after": WHOLE},
        optional=["retry_after"],
    )
    return operation(
        "reportMany",
        "Report on many jobs",
        tag=TAG,
        who=BACKEND,
        more=f"1 to {MOST_REPORTS} reports in one transaction. Each is answered as it would have been alone, in order; "
        "what is wrong with the caller refuses all.",
        body=body(ref("Batch"), {"reports": [REPORT]}, f"at most {callback.BATCH_LIMIT // MIB} MiB"),
        answers={
            200: answer(
                "An answer for each report",
                members({"ok": OK, "reports": listed({"anyOf": [said, refused]})}),
            )
        },
        refusals=[MALFORMED, *UNKNOWN_CALLER, *SENDING],
    )


def _relayed() -> Schema:
    return operation(
        "relay",
        "Pass on a report",
        tag=TAG,
        who=RELAY,
        more="For a relay that dispatches by itself. Identity, level and times are its word. Such results are shown on "
        "pages and in JSON, never on a pull request.",
        body=body(ref("Envelope"), ENVELOPE, f"at most {callback.LIMIT // MIB} MiB"),
        answers={200: answer("Stored, or stored already (`duplicate`)", TAKEN)},
        refusals=[
            MALFORMED,
            (401, "invalid_token", "`X-OOT-Relay-Token` is missing or wrong"),
            (404, "not_found", "the door is closed: no RELAY_TOKEN is set"),
            CONFLICT,
            (429, "rate_limited", "too many refusals in a minute"),
            *SENDING,
        ],
    )
