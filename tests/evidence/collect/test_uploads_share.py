"""Uploads of many: a stalled one ends, one sender keeps no other out, and each has a rate."""

from __future__ import annotations

import asyncio

import pytest

from bot.evidence.collect import uploads
from bot.web.bodies import CapacityLimits
from tests.command import ootbot
from tests.evidence.collect.test_collecting import temporary_files
from tests.evidence.collect.test_uploads import dispatch, send  # noqa: F401 - a fixture
from tests.harness import L2, L3, L4
from tests.serving import SQLITE, converse, request_head

pytestmark = SQLITE
COMMIT = "c" * 40


@pytest.fixture(autouse=True)
def limits(monkeypatch):
    """The limits that are shipped, in less time."""
    shorter = CapacityLimits(
        most_bytes=uploads.LIMITS.most_bytes,
        most_bodies=uploads.LIMITS.most_bodies,
        most_each=uploads.LIMITS.most_each,
        grace=1.0,
        patience=2.0,
    )
    monkeypatch.setattr(uploads, "LIMITS", shorter)


def head_of(bot, dispatch, repo=L3):  # noqa: F811
    bearer = bot.issuer.mint(repository=repo, run_id="900", run_attempt=1)
    payload = dispatch.client_payload
    path = f"/api/oot/uploads?kind=log&delivery_id={payload['delivery_id']}&run_id=900&workflow=CI&job=build"
    headers = {
        "Authorization": f"Bearer {bearer}".encode(),
        uploads.TOKEN_HEADER: payload["callback_token"].encode(),
        "Content-Length": b"80000",
    }
    return request_head("POST", path, headers)


async def test_a_body_that_comes_too_slowly_ends(bot, dispatch):  # noqa: F811
    status, answer = await converse(bot.url, head_of(bot, dispatch) + b"one\n", bytes(1000), pause=3.0)
    assert (status, answer["error"]) == (408, "body_timeout")
    assert await bot.rows("ci_upload") == []
    assert temporary_files(bot) == []
    assert (await send(bot, dispatch))[0] == 202  # its place is free again


async def test_stalled_uploads_of_one_backend_keep_no_other_out(bot, dispatch):  # noqa: F811
    going = [
        asyncio.create_task(converse(bot.url, head_of(bot, dispatch) + b"one\n", bytes(80_000), pause=5.0))
        for _ in range(4)
    ]
    await asyncio.sleep(0.3)
    of_other = bot.dispatch(L4)
    token = bot.issuer.mint(repository=L4, run_id="900", run_attempt=1)
    assert (await send(bot, of_other, token=token))[0] == 202
    assert (await send(bot, dispatch))[0] == 202  # its own, too: those that stall end
    statuses = [status for status, _ in await asyncio.gather(*going)]
    assert set(statuses) <= {408, 503}, statuses


async def test_sixty_uploads_a_minute_are_the_most(bot, dispatch):  # noqa: F811
    token = bot.issuer.mint(repository=L3, run_id="900", run_attempt=1)
    for _ in range(uploads.A_MINUTE):
        assert (await send(bot, dispatch, token=token))[0] == 202
    status, answer = await send(bot, dispatch, token=token)
    assert (status, answer["error"]) == (429, "rate_limited")
    assert "60 files in a minute" in answer["detail"]
    other = bot.issuer.mint(repository=L4, run_id="900", run_attempt=1)
    assert (await send(bot, bot.dispatch(L4), token=other))[0] == 202
    bot.clock.advance(61)
    assert (await send(bot, dispatch, token=token))[0] == 202


async def test_a_static_key_uploads_for_dispatched_runs_only(bot, dispatch):  # noqa: F811
    code, out, err = await ootbot(bot, "keys", "add", L2)
    assert code == 0, err
    key, of_l2 = out.strip(), bot.dispatch(L2)
    assert (await send(bot, of_l2, token=key))[0] == 202
    status, answer = await send(bot, of_l2, token=key, kind="junit", delivery_id=COMMIT, event_type="nightly")
    assert (status, answer["error"]) == (403, "forbidden")
    assert "own runs with a static key are not taken" in answer["detail"]
    token = bot.issuer.mint(repository=L2, run_id="900", run_attempt=1)
    status, _ = await send(bot, of_l2, token=token, kind="junit", delivery_id=COMMIT, event_type="nightly")
    assert status == 202
