"""Today's relay posts to us instead of the HUD: other addresses, another header, envelopes that lack something."""

from __future__ import annotations

import pytest

from bot.app import make_app
from tests.harness import UPSTREAM, replace
from tests.interop import client
from tests.interop.client import TOKEN, Client, envelope, forward
from tests.samples import nightly
from tests.serving import SQLITE, serving

pytestmark = [pytest.mark.logic, SQLITE]

WITH_AND_WITHOUT = pytest.mark.parametrize("preset", ["crcr", nightly(None)])  # see test_differences
FAR = "far/backend"


@pytest.fixture
async def door(bot):
    """The bot, its door for relays open."""
    context = replace(bot.context, settings=replace(bot.context.settings, relay_token=TOKEN))
    async with serving(bot, make_app(context)) as served:
        yield served


def report(bot, status="completed", conclusion="success", *, number=7, sha="a" * 40, **fields):
    """Return what a backend far away sent to its relay."""
    echo = {"repository": {"full_name": UPSTREAM}, "pull_request": {"number": number, "head": {"sha": sha}}}
    workflow = Client(bot, FAR, job="test").fields(status, conclusion, {}) | fields
    return {"event_type": "pull_request", "delivery_id": "d-1", "payload": echo, "workflow": workflow}


@WITH_AND_WITHOUT
@pytest.mark.parametrize(
    "path", ["/crcr/results", "/api/crcr/results", "/api/crcr/results/", "/api/oot/results"]
)
async def test_every_address_takes_the_header_of_the_hud(door, path):
    assert await forward(door, envelope(report(door), FAR), path=path) == (
        200,
        {"ok": True, "status": "completed"},
    )
    (row,) = await door.rows("oot_workflow_job")
    assert (row["downstream_repo"], row["source"], row["pr_number"]) == (FAR, "relay", 7)
    status, answer = await forward(door, envelope(report(door), FAR), path=path, token="guessed")
    assert (status, answer["error"]) == (401, "invalid_token")


async def test_without_a_token_of_ours_the_addresses_do_not_exist(bot):
    for path in ("/crcr/results", "/api/crcr/results"):
        assert (await forward(bot, envelope(report(bot), FAR), path=path))[0] == 404


@WITH_AND_WITHOUT
async def test_a_second_report_brings_the_time_that_the_first_lacked(door):
    begun = report(door, "in_progress")
    await forward(door, envelope(begun, FAR))
    assert await forward(door, envelope(begun, FAR, queue_time=12.5)) == (
        200,
        {"ok": True, "status": "in_progress"},
    )
    again = (200, {"ok": True, "status": "in_progress", "duplicate": True})
    assert await forward(door, envelope(begun, FAR, queue_time=99)) == again
    (row,) = await door.rows("oot_workflow_job")
    assert row["queue_time"] == 12.5


async def test_the_end_of_a_job_is_written_once_and_fails_no_step(door):
    begun, ended = report(door, "in_progress"), report(door, conclusion="failure")
    told = [(await client.pass_on(door, one, FAR))["status"] for one in (begun, begun, ended, ended, begun)]
    assert told == [
        "in_progress",
        "in_progress",
        "completed",
        "duplicate",
        "in_progress",
    ]  # lost answers, out of order
    for path, code in {"/crcr/results": 409, "/api/crcr/results": 409, "/api/oot/results": 200}.items():
        status, answer = await forward(door, envelope(ended, FAR), path=path)
        assert (status, answer.get("error")) == (code, "duplicate" if code == 409 else None)
    again = {"run_attempt": 2, "check_run_id": "900-2"}
    for one in (report(door, "in_progress", **again), report(door, **again)):
        assert (await client.pass_on(door, one, FAR))["status"] == one["workflow"]["status"]
    rows = {row["run_attempt"]: row["conclusion"] for row in await door.rows("oot_workflow_job")}
    assert rows == {1: "failure", 2: "success"}


@WITH_AND_WITHOUT
async def test_legs_of_a_matrix_that_share_a_name_are_one_job_which_ends_as_the_worst(door):
    legs = {"1": "success", "2": "failure", "3": "success"}
    for leg in legs:
        assert await client.pass_on(door, report(door, "in_progress", check_run_id=leg), FAR)
    for leg, conclusion in legs.items():
        assert await client.pass_on(door, report(door, conclusion=conclusion, check_run_id=leg), FAR)
    (row,) = await door.rows("oot_workflow_job")
    assert (row["conclusion"], row["check_run_id"]) == ("failure", "2")


LACKING = {  # what is odd in the report -> the flags
    "no payload": (lambda sent: sent | {"payload": None}, {"payload_dropped"}),
    "no upstream": (lambda sent: sent | {"payload": {"pull_request": {"number": 7}}}, {"payload_dropped"}),
    "a number that is none": (
        lambda sent: sent | {"payload": sent["payload"] | {"pull_request": {"number": "seven"}}},
        {"payload_dropped"},
    ),
    "no conclusion": (
        lambda sent: sent | {"workflow": sent["workflow"] | {"conclusion": ""}},
        {"no_conclusion"},
    ),
    "a negative count": (
        lambda sent: sent | {"workflow": sent["workflow"] | {"test_results": {"passed": -3}}},
        {"counts_dropped"},
    ),
}


@WITH_AND_WITHOUT
@pytest.mark.parametrize("case", LACKING)
async def test_what_is_lacking_is_flagged_or_refused(door, preset, case):
    spoil, flags = LACKING[case]
    status, answer = await forward(door, envelope(spoil(report(door)), FAR))
    if not preset:
        assert (status, answer["error"]) == (400, "invalid_report")
        return
    assert status == 200
    (row,) = await door.rows("oot_workflow_job")
    assert set(row["flags"]) == {"no_start", *flags}
    assert row["upstream_repo"] == UPSTREAM


async def test_a_relayed_nightly_is_on_the_commit_that_it_names(door):
    commit = "cd" * 20
    made_up = {"repository": {"full_name": UPSTREAM}, "head_sha": commit}
    sent = report(door) | {"event_type": "nightly", "delivery_id": "buildkite-7-test", "payload": made_up}
    assert (await forward(door, envelope(sent, FAR)))[0] == 200
    (row,) = await door.rows("oot_workflow_job")
    assert (row["head_sha"], row["delivery_id"]) == (commit, "buildkite-7-test")
