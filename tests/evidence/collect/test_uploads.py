"""Uploads of backends on another CI: who may, how much, and what becomes of the file."""

from __future__ import annotations

import io

import pytest

from bot.evidence.collect import blobs, uploads
from tests.harness import L1, L2, L3, UPSTREAM
from tests.serving import SQLITE

pytestmark = SQLITE
LOG = b"one\ntwo\n"


@pytest.fixture
async def dispatch(bot, github):
    await github.open_pull(UPSTREAM)
    await bot.settle()
    return bot.dispatch(L3)


async def send(bot, dispatch, body=LOG, *, repo=L3, token=None, headers=None, **query):
    payload = dispatch.client_payload
    wanted = {
        "kind": "log",
        "delivery_id": payload["delivery_id"],
        "run_id": "900",
        "workflow": "CI",
        "job": "build",
    }
    wanted = {name: value for name, value in (wanted | query).items() if value is not None}
    bearer = token or bot.issuer.mint(repository=repo, run_id="900", run_attempt=1)
    sent = {"Authorization": f"Bearer {bearer}", uploads.TOKEN_HEADER: payload["callback_token"]} | (
        headers or {}
    )
    sent = {name: value for name, value in sent.items() if value is not None}
    return await bot.request("POST", "/api/oot/uploads", params=wanted, data=io.BytesIO(body), headers=sent)


async def test_a_log_is_kept_and_read(bot, dispatch, received):
    status, answer = await send(bot, dispatch)
    assert (status, answer["ok"]) == (202, True)
    await bot.settle()
    assert received == []  # until it is known whether the job failed
    await bot.report(dispatch, conclusion="failure")
    await bot.settle()
    (row,) = await bot.rows("ci_upload")
    assert (row["backend"], row["job"], row["size"], row["id"]) == (L3, "build", len(LOG), answer["upload"])
    (fetched, parsed, blob) = received[-1]
    assert (fetched.source, fetched.repo, fetched.object_id, fetched.trusted) == (
        "upload",
        L3,
        -row["id"],
        False,
    )
    assert parsed == {"lines": 2, "last": b"two"}
    store = blobs.open_blobs(bot.context.settings)
    assert {one.key async for one in store.list()} == {blob}
    (state,) = await bot.rows("ci_fetch")
    assert (state["kind"], state["state"]) == ("upload", "stored")


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"kind": "sbom"}, 400, "invalid_parameter"),
        ({"kind": None}, 400, "invalid_parameter"),
        ({"job": None}, 400, "invalid_parameter"),
        ({"run_attempt": "0"}, 400, "invalid_parameter"),
        ({"run_id": "901"}, 403, "forbidden"),
        ({"delivery_id": "unknown"}, 404, "unknown_dispatch"),
        ({"token": "nonsense"}, 401, "invalid_token"),
        ({"repo": L1}, 403, "not_listed"),
        ({"repo": L2}, 404, "unknown_dispatch"),
        ({"headers": {uploads.TOKEN_HEADER: None}}, 403, "forbidden"),
        ({"headers": {uploads.TOKEN_HEADER: "wrong"}}, 403, "forbidden"),
        ({"headers": {"Content-Encoding": "gzip"}}, 415, "unsupported_encoding"),
    ],
)
async def test_an_upload_without_the_right_to_it_is_refused(bot, dispatch, change, status, code):
    if change.get("repo") == L2:
        change = change | {"delivery_id": "of-another-backend"}
    got, answer = await send(bot, dispatch, **change)
    assert (got, answer["error"]) == (status, code), answer
    assert await bot.rows("ci_upload") == []


async def test_the_known_kinds_are_named(bot, dispatch):
    _, answer = await send(bot, dispatch, kind="benchmark")
    assert "junit, log, usage" in answer["detail"]


async def test_one_byte_over_the_limit_is_refused(bot, dispatch):
    assert (await send(bot, dispatch, bytes(uploads.UPLOAD_LIMIT)))[0] == 202
    status, answer = await send(bot, dispatch, bytes(uploads.UPLOAD_LIMIT + 1))
    assert (status, answer["error"]) == (413, "body_too_large")


async def test_two_gibibytes_a_day_are_the_most(bot, dispatch):
    import sqlalchemy as sa

    from bot.evidence.collect.tables import ci_upload

    assert (await send(bot, dispatch))[0] == 202
    async with bot.store.transaction() as tx:
        await tx.run(sa.update(ci_upload).values(size=uploads.DAILY_LIMIT))
    status, answer = await send(bot, dispatch)
    assert (status, answer["error"]) == (429, "rate_limited")
    bot.clock.advance(86_401)
    token = bot.issuer.mint(repository=L3, run_id="900", run_attempt=1)
    assert (await send(bot, dispatch, token=token))[0] == 202
