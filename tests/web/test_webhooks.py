"""What does the webhook door take, and what does it refuse? Refusals say what to do and leave no trace."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import hmac
import io
import json
import sqlite3
import uuid
from dataclasses import replace

import pytest
import sqlalchemy as sa

from bot.store import Store
from bot.web.routes import make_app
from bot.web.webhooks import LIMIT
from tests import harness
from tests.harness import SECRET, UPSTREAM, sign
from tests.serving import POSTGRES, SQLITE, converse, request_head, serving

MIB = 1024 * 1024
PATH = "/api/github/webhooks"
OPENED = {
    "action": "opened",
    "issue": {
        "id": 7,
        "number": 1,
        "title": "It is slow",
        "state": "open",
        "updated_at": "2026-01-02T03:04:05Z",
    },
    "repository": {"id": 5, "full_name": UPSTREAM},
}


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


async def test_25_mib_are_taken_and_one_byte_more_is_not(bot):
    largest = b'{"a":"' + b"x" * (LIMIT - 8) + b'"}'
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
    assert row["body"] == largest


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


# name: the body -> the issue's columns that it must come to
ODD_BUT_TAKEN = {
    "the same name twice: the last counts": (
        b'{"issue": {"id": 7, "number": 1, "title": "old", "title": "new"}, "repository": {"id": 5}}',
        {"title": "new"},
    ),
    "500 lists in one another": (
        b'{"issue": {"id": 7, "number": 1, "title": "deep", "x": ' + b"[" * 500 + b"]" * 500
        + b'}, "repository": {"id": 5}}',
        {"title": "deep"},
    ),
    "numbers beyond 64 bits": (
        b'{"issue": {"id": 7, "number": 1, "title": "huge", "comments": 1' + b"0" * 30
        + b'}, "repository": {"id": 5}, "installation": {"id": 99999999999999999999}}',
        {"title": "huge", "comments": None},
    ),
    "members of other types": (
        b'{"action": [], "issue": {"id": 7, "number": 1, "title": {"a": 1}, "labels": 3, "user": "x"},'
        b' "repository": {"id": 5, "full_name": 3}, "installation": []}',
        {"title": None, "labels": None, "user_login": None},
    ),
    "NUL in a title": (
        b'{"issue": {"id": 7, "number": 1, "title": "a\\u0000b"}, "repository": {"id": 5, "full_name": "o/\\u0000r"}}',
        {"title": "ab"},
    ),
    "fields nobody knows yet": (
        b'{"issue": {"id": 7, "number": 1, "title": "new", "mood": {}}, "repository": {"id": 5}, "more": []}',
        {"title": "new"},
    ),
}  # fmt: skip


async def test_odd_bodies_are_kept_as_they_came_and_handled(bot):
    wrong = {}
    for number, (name, (body, expected)) in enumerate(ODD_BUT_TAKEN.items()):
        body = body.replace(b'"id": 7', b'"id": %d' % number)
        assert (await bot.send("issues", None, guid=f"odd-{number}", body=body))[0] == 202, name
        await bot.settle()
        (delivery,) = [row for row in await bot.rows("delivery") if row["guid"] == f"odd-{number}"]
        found = [row for row in await bot.rows("issue") if row["id"] == number]
        values = [{column: row[column] for column in expected} for row in found]
        if (delivery["state"], values, delivery["body"]) != ("handled", [expected], body):
            wrong[name] = (delivery["state"], delivery["error"], values)
    assert wrong == {}


async def test_a_body_that_cannot_be_an_issue_is_parked_and_the_others_are_handled(bot):
    for guid, payload in (("bad", {"issue": {"id": "seven"}}), ("good", OPENED)):
        assert (await bot.send("issues", payload, guid=guid))[0] == 202
    await bot.settle()
    states = {row["guid"]: row["state"] for row in await bot.rows("delivery")}
    assert states == {"bad": "parked", "good": "handled"}


async def test_an_event_nobody_handles_is_kept_and_ignored(bot):
    assert (await bot.send("marketplace_purchase", {"action": "purchased"}))[0] == 202
    await bot.settle()
    (row,) = await bot.rows("delivery")
    assert (row["state"], row["event"]) == ("ignored", "marketplace_purchase")


async def test_a_delivery_for_another_app_is_stored_as_foreign_and_never_handled(bot):
    for target in ("999999", "nobody", "9" * 40):
        headers = {"X-GitHub-Hook-Installation-Target-ID": target}
        assert (await bot.send("issues", OPENED, headers=headers))[0] == 202
    await bot.settle()
    assert {row["state"] for row in await bot.rows("delivery")} == {"foreign"}
    assert await bot.rows("issue") == []
    ours = {"X-GitHub-Hook-Installation-Target-ID": str(bot.app.app_id)}
    assert (await bot.send("issues", OPENED, headers=ours))[0] == 202
    await bot.settle()
    assert len(await bot.rows("issue")) == 1


async def test_the_same_delivery_again_is_acknowledged_as_a_duplicate(bot):
    assert await bot.send("issues", OPENED, guid="g-1") == (202, {"ok": True, "delivery": "g-1"})
    for _ in range(2):
        again = await bot.send("issues", OPENED, guid="g-1")
        assert again == (202, {"ok": True, "delivery": "g-1", "duplicate": True})
        await bot.settle()
    assert len(await bot.rows("delivery")) == 1


async def test_of_many_at_the_same_moment_exactly_one_is_new(bot):
    answers = await asyncio.gather(*(bot.send("issues", OPENED, guid="g-2") for _ in range(30)))
    assert {status for status, _ in answers} == {202}
    assert sum("duplicate" not in answer for _, answer in answers) == 1
    assert len(await bot.rows("delivery")) == 1


@SQLITE
async def test_both_secrets_are_good_while_one_is_rotated(settings, github, issuer, clock):
    rotating = replace(settings, webhook_secret=("the old one", "the new one"))
    async with harness.running(rotating, github=github, issuer=issuer, app=github.app, clock=clock) as bot:
        for secret, status in (("the old one", 202), ("the new one", 202), (SECRET, 401), ("", 401)):
            assert (await bot.send("issues", OPENED, secret=secret))[0] == status
        assert len(await bot.rows("delivery")) == 2


@SQLITE
async def test_a_locked_sqlite_is_said_and_got_over(bot, settings):
    store = Store(settings.database, clock=bot.clock, busy_timeout=0.1)
    async with serving(bot, make_app(replace(bot.context, store=store))) as served:
        assert (await served.send("issues", OPENED, guid="before"))[0] == 202
        other = sqlite3.connect(settings.data_dir / "ootbot.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        answers = await asyncio.gather(*(served.send("issues", OPENED, guid=f"during-{n}") for n in range(3)))
        for status, answer in answers:
            assert (status, answer["error"]) == (503, "store_unavailable")
            assert "again" in answer["detail"]
        other.execute("ROLLBACK")
        other.close()
        assert [row["guid"] for row in await bot.rows("delivery")] == ["before"]
        assert await served.send("issues", OPENED, guid="during-1") == (
            202,
            {"ok": True, "delivery": "during-1"},
        )
    await store.close()


@POSTGRES
async def test_a_postgresql_that_went_away_is_said_and_got_over(bot, database_url, postgres_server):
    assert (await bot.send("issues", OPENED, guid="before"))[0] == 202
    name = sa.engine.make_url(database_url).database
    kick = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
    await as_administrator(postgres_server, f"ALTER DATABASE {name} ALLOW_CONNECTIONS false", kick)
    for _ in range(3):
        status, answer = await bot.send("issues", OPENED, guid="during")
        assert (status, answer["error"]) == (503, "store_unavailable")
    await as_administrator(postgres_server, f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
    assert await bot.send("issues", OPENED, guid="during") == (202, {"ok": True, "delivery": "during"})
    await as_administrator(postgres_server, kick)
    answers = [await bot.send("issues", OPENED, guid=f"after-{n}") for n in range(4)]
    assert {status for status, _ in answers} <= {202, 503}
    assert answers[-1][0] == 202
    acknowledged = {answer["delivery"] for status, answer in answers if status == 202}
    assert {row["guid"] for row in await bot.rows("delivery")} == {"before", "during"} | acknowledged


async def as_administrator(server, *statements):
    engine = sa.ext.asyncio.create_async_engine(
        server.replace("postgresql://", "postgresql+asyncpg://"), isolation_level="AUTOCOMMIT"
    )
    async with engine.connect() as conn:
        for statement in statements:
            await conn.execute(sa.text(statement))
    await engine.dispose()


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
