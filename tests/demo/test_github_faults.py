"""How does the simulated GitHub fail? Before or after the act, by dropping, by limits."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest

from tests.demo.desk import (
    UPSTREAM,
    Hands,
)


async def test_a_fault_before_prevents_the_act_and_a_fault_after_only_its_answer(desk, pull):
    path = f"/repos/{UPSTREAM}/issues/{pull.number}/comments"
    desk.github.faults.add(method="POST", path="/comments$", when="before", status=502)
    assert (await desk.call("POST", path, {"body": "one"}))[0] == 502
    assert desk.github.comments(pull) == []
    desk.github.faults.add(method="POST", path="/comments$", when="after", status=504)
    assert (await desk.call("POST", path, {"body": "two"}))[0] == 504
    assert (await desk.call("POST", path, {"body": "three"}))[0] == 201
    assert [each.body for each in desk.github.comments(pull)] == ["two", "three"]
    posts = [each for each in desk.github.calls if each.path.endswith("/comments")]
    assert [(each.status, each.faulted) for each in posts] == [
        (502, True),
        (504, True),
        (201, False),
    ]


async def test_a_dropped_connection_has_acted_only_after(desk):
    path, body = f"/repos/{UPSTREAM}/dispatches", {"event_type": "go"}
    for when in ("before", "after"):
        desk.github.faults.add(method="POST", path="/dispatches$", when=when, drop=True)
        with pytest.raises(aiohttp.ClientError):
            await desk.call("POST", path, body)
    assert len(desk.github.dispatches) == 1
    assert [each.status for each in desk.github.calls if "dispatches" in each.path] == [0, 0]


async def test_an_answer_that_nobody_waits_for_still_means_that_it_happened(desk, pull):
    class Waits(Hands):
        started, go = asyncio.Event(), asyncio.Event()

        async def sleep(self, seconds):
            self.started.set()
            await self.go.wait()

    clock = desk.github.world.clock = Waits()
    desk.github.faults.add(method="POST", path="/comments$", when="after", status=None, delay=9)
    path = f"/repos/{UPSTREAM}/issues/{pull.number}/comments"
    caller = asyncio.create_task(desk.call("POST", path, {"body": "late"}))
    await clock.started.wait()
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    clock.go.set()
    await desk.call("GET", path)
    assert [each.body for each in desk.github.comments(pull)] == ["late"]


async def test_rate_limits_come_on_demand_in_every_form(desk):
    path = f"/repos/{UPSTREAM}"
    secondary = {"message": "You have exceeded a secondary rate limit."}
    faults = desk.github.faults
    faults.add(path=f"^{path}$", status=403, headers={"Retry-After": "7"}, body=secondary)
    faults.add(path=f"^{path}$", status=429)
    faults.add(path=f"^{path}$", status=None, headers={"X-RateLimit-Remaining": "0"})
    answers = [await desk.call("GET", path) for _ in range(4)]
    assert [status for status, _, _ in answers] == [403, 429, 200, 200]
    assert answers[0][1] == secondary
    assert answers[0][2]["Retry-After"] == "7"
    assert answers[2][2]["X-RateLimit-Remaining"] == "0"
    assert answers[3][2]["X-RateLimit-Remaining"] != "0"
