"""Under the preset, no report within our limits that today's relay accepts is refused."""

from __future__ import annotations

import asyncio
import itertools
import json

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.harness import L2, UPSTREAM
from tests.interop import client
from tests.interop.client import AUDIENCE
from tests.samples import nightly
from tests.serving import SQLITE

pytestmark = [pytest.mark.logic, SQLITE]

NAME, ID = 1000, 200  # characters
TEXT = st.text(st.characters(exclude_characters="\x00"), max_size=12)
NUMBER = st.integers(-(2**70), 2**70) | st.floats(-1e20, 1e20)
ANYTHING = st.recursive(
    st.none() | st.booleans() | NUMBER | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)
COUNTS = st.dictionaries(st.sampled_from(["passed", "failed", "skipped", "total"]), ANYTHING)
FAILED = st.lists(
    st.dictionaries(st.sampled_from(["name", "classname", "line", "message"]), ANYTHING), max_size=3
)
ODD = {  # a member of the report's `workflow` -> what is sent in its place
    "schema_version": ANYTHING,
    "conclusion": st.sampled_from(["success", "FAILURE", "error", "", None]) | ANYTHING,
    "name": TEXT | ANYTHING,
    "url": ANYTHING,
    "run_attempt": st.sampled_from([1, "2", 3.0, -1, 0, True]),
    "job_name": TEXT | NUMBER,
    "check_run_id": TEXT | NUMBER | ANYTHING,
    "run_id": st.sampled_from([" 12 ", "1_000", True, 10.7, -3]) | st.integers(0, 2**70),
    "started_at": TEXT | ANYTHING,
    "completed_at": TEXT | ANYTHING,
    "test_results": COUNTS | ANYTHING,
    "failed_tests": FAILED | ANYTHING,
    "failed_tests_detail": FAILED | ANYTHING,
    "artifact_url": TEXT | ANYTHING,
    "environment": ANYTHING,
    "triage_verdict": ANYTHING,
}
AROUND = {  # the same for what is beside `workflow`
    "payload": ANYTHING,
    "verified_repo": ANYTHING,
    "downstream_repo_level": ANYTHING,
    "schema_version": ANYTHING,
}


def taken_today(body):
    """Whether today's relay and the HUD behind it take this report of an allowed backend, as far as they look."""
    work = body["workflow"]
    try:
        int(work["run_id"]), int(work.get("run_attempt", 1))
    except (ValueError, TypeError, OverflowError):
        return False
    is_text_or_number = isinstance(work["job_name"], str | int | float)
    return bool(work["job_name"]) and is_text_or_number and work["check_run_id"] is not None


def within_limits(body):
    """Whether it keeps to the limits of size that we have and today's relay does not."""
    work = body["workflow"]
    named = [(work["name"], NAME), (work["job_name"], NAME), (work["check_run_id"], ID), (work["run_id"], ID)]
    return all(len(json.dumps(value, ensure_ascii=False)) <= most for value, most in named)


@st.composite
def reports(draw):
    """What is drawn of one report: its status, whether a timer began the run, and what is odd about it."""
    status = draw(st.sampled_from(["in_progress", "completed"]))
    odd = draw(st.lists(st.sampled_from(sorted(ODD)), max_size=4, unique=True))
    around = draw(st.lists(st.sampled_from(sorted(AROUND)), max_size=2, unique=True))
    nightly = draw(st.none() | st.text("abc-/ é", min_size=1, max_size=20)) if status == "completed" else None
    return (
        status,
        nightly,
        {name: draw(ODD[name]) for name in odd},
        {name: draw(AROUND[name]) for name in around},
    )


@pytest.mark.parametrize("wanted", [40, nightly(400)])
async def test_nothing_that_is_taken_today_is_refused(bot, github, wanted):
    await bot.list_backends(f"L2: [{{repo: {L2}, events: [pull_request, nightly], rate_limit: 100000}}]")
    await github.open_pull(UPSTREAM)
    await bot.settle()
    step = client.of(bot, bot.dispatch(L2))
    loop, numbers, statuses = asyncio.get_running_loop(), itertools.count(1), []

    async def post(body):
        token = bot.issuer.mint(repository=L2, run_id=str(next(numbers)), audience=AUDIENCE)
        return await bot.request(
            "POST", "/api/oot/callback/", data=json.dumps(body), headers={"Authorization": f"Bearer {token}"}
        )

    @settings(
        max_examples=wanted,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(reports())
    def ask(drawn):
        status, nightly, odd, around = drawn
        body = step.client_payload | {"workflow": step.fields(status, "success", {}) | odd} | around
        if nightly is not None:
            body |= {"event_type": "nightly", "delivery_id": nightly}
        assume(taken_today(body) and within_limits(body))
        code, answer = asyncio.run_coroutine_threadsafe(post(body), loop).result()
        assert code == 200, (answer, body)
        statuses.append(answer["status"])

    await asyncio.to_thread(ask)
    assert len(statuses) >= wanted
    _, listed = await bot.get(f"/api/oot/backends/{L2}?limit=500")
    assert {"completed", "in_progress"} == {job["status"] for job in listed["jobs"]}
    for page in (f"/oot/{L2}", f"/oot/{L2}?tab=nightly", f"/{UPSTREAM}/pull/1"):
        assert (await bot.get(page))[0] == 200
