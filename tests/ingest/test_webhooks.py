"""What does the webhook door take, and what does it refuse? Refusals say what to do and leave no trace."""

import asyncio
import gzip
import hashlib
import hmac
import io
import json
import uuid
from dataclasses import replace

import pytest

from bot.app import make_app
from bot.ingest.webhooks import BODY_LIMIT
from tests import harness
from tests.harness import SECRET, sign
from tests.oot.reports.reporting import OPENED
from tests.serving import SQLITE, converse, request_head, serving

MIB = 1024 * 1024
PATH = "/api/github/webhooks"


def sha1(body: bytes) -> str:
    return "sha1=" + hmac.new(SECRET.encode(), body, hashlib.sha1).hexdigest()


BODY = json.dumps(OPENED).encode()
NESTED = b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"

# name: what differs from a proper delivery -> status, error code, a word the detail must have
REFUSED = {
    "no signature": ({"headers": {"X-Hub-Signature-256": None}}, 401, "invalid_signature", "missing"),
    "an empty signature": ({"headers": {"X-Hub-Signature-256": ""}}, 401, "invalid_signature", "missing"),
    "another secret": ({"secret": "guessed"}, 401, "invalid_signature", "WEBHOOK_SECRET"),
    "another secret, unknown event": ({"secret": "guessed", "event": "starred_twice"}, 401, "invalid_signature", "WEBHOOK_SECRET"),
    "another secret, ping": ({"secret": "guessed", "event": "ping"}, 401, "invalid_signature", "WEBHOOK_SECRET"),
    "another secret, no event": ({"secret": "guessed", "headers": {"X-GitHub-Event": None}}, 401, "invalid_signature", "WEBHOOK_SECRET"),
    "another secret, no JSON": ({"secret": "guessed", "body": b"{"}, 401, "invalid_signature", "WEBHOOK_SECRET"),
    "a signature of another body": ({"headers": {"X-Hub-Signature-256": sign(b"{}", SECRET)}}, 401, "invalid_signature", "WEBHOOK_SECRET"),
    "only SHA-1": ({"headers": {"X-Hub-Signature-256": None, "X-Hub-Signature": sha1(BODY)}}, 401, "invalid_signature", "X-Hub-Signature-256"),
    "SHA-1 in the header of SHA-256": ({"headers": {"X-Hub-Signature-256": sha1(BODY)}}, 401, "invalid_signature", "WEBHOOK_SECRET"),
    "upper case hexadecimal": ({"headers": {"X-Hub-Signature-256": sign(BODY, SECRET).upper()}}, 401, "invalid_signature", "WEBHOOK_SECRET"),
    "no algorithm": ({"headers": {"X-Hub-Signature-256": sign(BODY, SECRET)[7:]}}, 401, "invalid_signature", "WEBHOOK_SECRET"),
    "letters beyond ASCII": ({"headers": {"X-Hub-Signature-256": "sha256=ééé"}}, 401, "invalid_signature", "WEBHOOK_SECRET"),
    "no body": ({"body": b""}, 400, "invalid_json", "JSON"),
    "half a body": ({"body": BODY[:-1]}, 400, "invalid_json", "JSON"),
    "two bodies": ({"body": BODY + BODY}, 400, "invalid_json", "JSON"),
    "NaN": ({"body": b'{"a": NaN}'}, 400, "invalid_json", "JSON"),
    "invalid UTF-8 in a value": ({"body": b'{"a": "\xff"}'}, 400, "invalid_json", "JSON"),
    "invalid UTF-8 in a name": ({"body": b'{"\xc3\x28": 1}'}, 400, "invalid_json", "JSON"),
    "UTF-16": ({"body": json.dumps(OPENED).encode("utf-16")}, 400, "invalid_json", "JSON"),
    "a list": ({"body": b"[]"}, 400, "invalid_json", "JSON object"),
    "null": ({"body": b"null"}, 400, "invalid_json", "JSON object"),
    "a number": ({"body": b"42"}, 400, "invalid_json", "JSON object"),
    "a text": ({"body": b'"{}"'}, 400, "invalid_json", "JSON object"),
    "100,000 lists in one another": ({"body": NESTED}, 400, "invalid_json", "nested"),
    "no event": ({"headers": {"X-GitHub-Event": None}}, 400, "invalid_header", "X-GitHub-Event"),
    "an empty event": ({"headers": {"X-GitHub-Event": ""}}, 400, "invalid_header", "X-GitHub-Event"),
    "an event that is a path": ({"headers": {"X-GitHub-Event": "../push"}}, 400, "invalid_header", "X-GitHub-Event"),
    "an event of 1,000 letters": ({"headers": {"X-GitHub-Event": "a" * 1000}}, 400, "invalid_header", "X-GitHub-Event"),
    "no delivery": ({"headers": {"X-GitHub-Delivery": None}}, 400, "invalid_header", "X-GitHub-Delivery"),
    "an empty delivery": ({"headers": {"X-GitHub-Delivery": ""}}, 400, "invalid_header", "X-GitHub-Delivery"),
    "a delivery with spaces": ({"headers": {"X-GitHub-Delivery": "a b"}}, 400, "invalid_header", "X-GitHub-Delivery"),
    "a delivery of markup": ({"headers": {"X-GitHub-Delivery": "<script>"}}, 400, "invalid_header", "X-GitHub-Delivery"),
    "a delivery of 1,000 letters": ({"headers": {"X-GitHub-Delivery": "a" * 1000}}, 400, "invalid_header", "X-GitHub-Delivery"),
    "a delivery beyond ASCII": ({"headers": {"X-GitHub-Delivery": "é"}}, 400, "invalid_header", "X-GitHub-Delivery"),
    "gzip": ({"body": gzip.compress(BODY), "headers": {"Content-Encoding": "gzip"}}, 415, "unsupported_encoding", "Content-Encoding"),
    "br": ({"headers": {"Content-Encoding": "br"}}, 415, "unsupported_encoding", "Content-Encoding"),
    "a form": ({"body": b"payload=%7B%7D", "headers": {"Content-Type": "application/x-www-form-urlencoded"}}, 415, "unsupported_media_type", "application/json"),
    "a form in capitals": ({"body": b"payload=%7B%7D", "headers": {"Content-Type": "Application/X-WWW-Form-Urlencoded; charset=utf-8"}}, 415, "unsupported_media_type", "application/json"),
}  # fmt: skip


@SQLITE
async def test_bad_deliveries_are_refused_with_a_reason_and_leave_no_trace(bot):
    wrong = {}
    for name, (differing, status, code, word) in REFUSED.items():
        sent = {"event": "issues", "payload": None, "body": BODY} | differing
        answer = await bot.send(sent.pop("event"), sent.pop("payload"), **sent)
        expected = {"ok": False, "error": code, "detail": answer[1]["detail"]}
        if answer != (status, expected) or word not in answer[1]["detail"]:
            wrong[name] = answer
    assert wrong == {}
    assert await bot.rows("delivery") == []


@SQLITE
async def test_header_bytes_that_are_no_text_are_refused(bot):
    for name in ("X-Hub-Signature-256", "X-GitHub-Delivery", "X-GitHub-Event"):
        headers = proper_headers(BODY) | {name: b"sha256=\xff\xfe\xe9"}
        status, answer = await converse(bot.url, request_head("POST", PATH, headers) + BODY)
        assert status in {400, 401}, (name, answer)
        assert answer["ok"] is False
    assert await bot.rows("delivery") == []


@pytest.mark.logic
async def test_25_mib_are_taken_and_one_byte_more_is_not(bot):
    largest = b'{"a":"' + b"x" * (BODY_LIMIT - 8) + b'"}'
    assert len(largest) == 25 * MIB
    headers = signed_headers(largest, guid="largest")
    assert (await bot.request("POST", PATH, data=io.BytesIO(largest), headers=headers))[0] == 202
    one_more, far_more = largest + b" ", b" " * (26 * MIB)
    for raw, data in (
        (one_more, io.BytesIO(one_more)),
        (one_more, in_pieces(one_more)),
        (far_more, io.BytesIO(far_more)),
    ):
        answer = await bot.request("POST", PATH, data=data, headers=signed_headers(raw))
        assert (answer[0], answer[1]["error"]) == (413, "body_too_large")
        assert "25 MiB" in answer[1]["detail"]
    (row,) = await bot.rows("delivery")
    assert row["guid"] == "largest"
    assert len(row["body"]) < 10_000  # compressed
    assert await bot.body("largest") == largest


@SQLITE
async def test_a_dripping_body_is_cut_off(bot):
    async with serving(bot, make_app(bot.context, body_seconds=0.3)) as served:
        head = request_head("POST", PATH, proper_headers(BODY))
        drops = [BODY[at : at + 1] for at in range(len(BODY))]
        status, answer = await converse(served.url, head, *drops, pause=0.02)
        assert (status, answer["error"]) == (408, "body_timeout")
        assert "again" in answer["detail"]
        assert (await served.send("issues", OPENED))[0] == 202
    assert len(await bot.rows("delivery")) == 1


@SQLITE
async def test_a_sender_that_hangs_up_leaves_no_trace_and_no_alarm(bot, caplog):
    _, writer = await asyncio.open_connection("127.0.0.1", int(bot.url.rpartition(":")[2]))
    writer.write(request_head("POST", PATH, proper_headers(BODY)) + BODY[:20])
    await writer.drain()
    writer.close()
    await writer.wait_closed()
    assert (await bot.send("issues", OPENED, guid="the-next"))[0] == 202
    assert [row["guid"] for row in await bot.rows("delivery")] == ["the-next"]
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []


@SQLITE
async def test_both_secrets_are_good_while_one_is_rotated(settings, github, issuer, clock):
    rotating = replace(settings, webhook_secret=("the old one", "the new one"))
    async with harness.running(rotating, github=github, issuer=issuer, app=github.app, clock=clock) as bot:
        for secret, status in (("the old one", 202), ("the new one", 202), (SECRET, 401), ("", 401)):
            assert (await bot.send("issues", OPENED, secret=secret))[0] == status
        assert len(await bot.rows("delivery")) == 2


def signed_headers(body: bytes, guid: str | None = None) -> dict[str, str]:
    return {
        "Content-Type": "application/json",
        "X-GitHub-Event": "issues",
        "X-GitHub-Delivery": guid or str(uuid.uuid4()),
        "X-Hub-Signature-256": sign(body, SECRET),
    }


def proper_headers(body: bytes) -> dict[str, bytes]:
    """The same as bytes, with a length."""
    headers = signed_headers(body) | {"Content-Length": str(len(body))}
    return {name: value.encode() for name, value in headers.items()}


async def in_pieces(body: bytes):
    """A body without Content-Length."""
    for start in range(0, len(body), MIB):
        yield body[start : start + MIB]


EVENTS = (
    "branch_protection_configuration", "branch_protection_rule", "check_run", "check_suite",
    "code_scanning_alert", "commit_comment", "content_reference", "create", "custom_property",
    "custom_property_values", "delete", "dependabot_alert", "deploy_key", "deployment",
    "deployment_protection_rule", "deployment_review", "deployment_status", "discussion", "discussion_comment",
    "fork", "github_app_authorization", "gollum", "installation", "installation_repositories",
    "installation_target", "issue_comment", "issue_dependencies", "issues", "label", "marketplace_purchase",
    "member", "membership", "merge_group", "meta", "milestone", "org_block", "organization", "package",
    "page_build", "personal_access_token_request", "ping", "project", "project_card", "project_column",
    "projects_v2", "projects_v2_item", "projects_v2_status_update", "public", "pull_request",
    "pull_request_review", "pull_request_review_comment", "pull_request_review_thread", "push",
    "registry_package", "release", "repository", "repository_advisory", "repository_dispatch",
    "repository_import", "repository_ruleset", "repository_vulnerability_alert", "secret_scanning_alert",
    "secret_scanning_alert_location", "secret_scanning_scan", "security_advisory", "security_and_analysis",
    "sponsorship", "star", "status", "sub_issues", "team", "team_add", "watch", "workflow_dispatch",
    "workflow_job", "workflow_run",
)  # fmt: skip


@SQLITE
async def test_every_event_of_githubs_schema_is_taken_and_listed(bot):
    body = {"action": "created", "sender": {"login": "octocat", "id": 1}}
    refused = {}
    for event in EVENTS:
        answer = await bot.send(event, body, guid=f"guid-{event}")
        if answer != (202, {"ok": True, "delivery": f"guid-{event}"}):
            refused[event] = answer
    assert refused == {}
    await bot.settle()
    kept = {row["event"]: row["state"] for row in await bot.rows("delivery")}
    assert set(kept) == set(EVENTS)
    assert kept["projects_v2_item"] == "ignored"


@SQLITE
@pytest.mark.parametrize("event", ["Issues", "issues-2", "issues.opened", "v\u00b2", "a" * 61])
async def test_what_can_be_no_event_is_refused(bot, event):
    status, answer = await bot.send(event, {})
    assert (status, answer["error"]) == (400, "invalid_header")
    assert await bot.rows("delivery") == []
