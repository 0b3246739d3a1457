"""Fault injection in the simulated GitHub: lost responses, dropped connections, rate limits."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest

from tests.demo.app_client import (
    UPSTREAM,
)
from tests.harness import ManualClock


async def test_a_fault_before_prevents_the_call_and_a_fault_after_only_its_response(client, pull):
    path = f"/repos/{UPSTREAM}/issues/{pull.number}/comments"
    client.github.faults.add(method="POST", path="/comments$", when="before", status=502)
    assert (await client.call("POST", path, {"body": "one"}))[0] == 502
    assert client.github.comments(pull) == []
    client.github.faults.add(method="POST", path="/comments$", when="after", status=504)
    assert (await client.call("POST", path, {"body": "two"}))[0] == 504
    assert (await client.call("POST", path, {"body": "three"}))[0] == 201
    assert [each.body for each in client.github.comments(pull)] == ["two", "three"]
    posts = [each for each in client.github.calls if each.path.endswith("/comments")]
    assert [(each.status, each.faulted) for each in posts] == [
        (502, True),
        (504, True),
        (201, False),
    ]


async def test_a_call_with_a_dropped_connection_takes_effect_only_with_after(client):
    path, body = f"/repos/{UPSTREAM}/dispatches", {"event_type": "go"}
    for when in ("before", "after"):
        client.github.faults.add(method="POST", path="/dispatches$", when=when, drop=True)
        with pytest.raises(aiohttp.ClientError):
            await client.call("POST", path, body)
    assert len(client.github.dispatches) == 1
    assert [each.status for each in client.github.calls if "dispatches" in each.path] == [0, 0]


async def test_a_call_takes_effect_even_if_the_caller_disconnects(client, pull):
    class WaitingClock(ManualClock):
        started, go = asyncio.Event(), asyncio.Event()

        async def sleep(self, seconds):
            self.started.set()
            await self.go.wait()

    clock = client.github.state.clock = WaitingClock()
    client.github.faults.add(method="POST", path="/comments$", when="after", status=None, delay=9)
    path = f"/repos/{UPSTREAM}/issues/{pull.number}/comments"
    caller = asyncio.create_task(client.call("POST", path, {"body": "late"}))
    await clock.started.wait()
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    clock.go.set()
    await client.call("GET", path)
    assert [each.body for each in client.github.comments(pull)] == ["late"]


async def test_faults_can_be_rate_limits_of_every_form(client):
    path = f"/repos/{UPSTREAM}"
    secondary = {"message": "You have exceeded a secondary rate limit."}
    faults = client.github.faults
    faults.add(path=f"^{path}$", status=403, headers={"Retry-After": "7"}, body=secondary)
    faults.add(path=f"^{path}$", status=429)
    faults.add(path=f"^{path}$", status=None, headers={"X-RateLimit-Remaining": "0"})
    answers = [await client.call("GET", path) for _ in range(4)]
    assert [status for status, _, _ in answers] == [403, 429, 200, 200]
    assert answers[0][1] == secondary
    assert answers[0][2]["Retry-After"] == "7"
    assert answers[2][2]["X-RateLimit-Remaining"] == "0"
    assert answers[3][2]["X-RateLimit-Remaining"] != "0"
