"""What is dispatched to the backends of today, and who may report: an allowlist as it is today."""

from __future__ import annotations

import asyncio
import itertools
import json

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.harness import L1, L2, L3, L4, UPSTREAM, running
from tests.interop import client
from tests.interop.client import AUDIENCE, Client
from tests.samples import nightly
from tests.serving import SQLITE

pytestmark = [pytest.mark.logic, SQLITE]


# A fleet of today, with `PRESET=crcr` and nothing else: a list of today's form, selective and nightly backends.


HOUR = 3600
TODAYS_LIST = f"""\
# who takes part, and whom to ask
L1:
  - {L1}
L2:
  - {L2}: alice, bob
L3:
  - npu:
      {L3}: [carol]
L4:
  - {L4}: dave
"""


async def test_a_day_of_a_fleet(bot, github):
    await bot.list_backends(TODAYS_LIST)
    pulls = [await github.open_pull(UPSTREAM, labels=["ciflow/crcr/npu"]) for _ in range(7)]
    await bot.settle()
    for number, pull in enumerate(pulls):  # the selective backend runs one of seven
        to_l4 = dispatch_of(github, L4, pull)
        run = await github.start_run(L4)
        step = client.of(bot, to_l4, run_id=str(run.id))
        await step.started()
        await step.ended("success" if number else "failure")
        await github.finish_run(run, "success" if number else "failure")
    selective = client.of(bot, dispatch_of(github, L3, pulls[0]))
    await selective.started()
    await selective.ended()
    await Client(bot, L2, run_id="77").nightly("buildkite-1234-test")
    await bot.wait(25 * HOUR)
    blocked = [client.objections(github, UPSTREAM, pull.head_sha, {L4}) for pull in pulls]
    assert blocked == [[f"crcr/{L4}/CI/build"], *[[]] * 6]
    gates = [bot.checks(UPSTREAM, pull.head_sha)["oot / gate"][1] for pull in pulls]
    assert gates == ["failure", *["success"] * 6]
    _, summary = await bot.get("/api/oot/summary")
    numbers = {one["repo"]: one for one in summary["backends"]}
    assert (numbers[L3]["pass_rate"], numbers[L3]["runs"], numbers[L3]["not_run"]) == (1.0, 1, 6)
    assert (numbers[L2]["pass_rate"], numbers[L2]["runs"], numbers[L2]["not_run"]) == (1.0, 1, 7)
    assert (numbers[L4]["success"], numbers[L4]["failure"]) == (6, 1)
    assert client.paged(github, UPSTREAM, pulls[0].head_sha, {L4: ["dave"], L3: ["carol"]}) == ["dave"]
    shown = [name for pull in pulls for name in bot.checks(UPSTREAM, pull.head_sha) if L3 in name]
    assert shown == [f"crcr/{L3}/CI/build"]


def dispatch_of(github, repo, pull):
    """Return the dispatch of a pull request that a backend received."""
    return next(
        one for one in github.dispatches
        if one.repo.full_name == repo and one.client_payload["payload"]["number"] == pull.number
    )  # fmt: skip


# Backends of today that answer only some dispatches, from an allowlist as it is today.


TODAY = f"""
L1:
  - {L1}
L2:
  - {L2}
L3:
  npu:
    {L3}: [carol]
L4:
  - {L4}: dave, erin
"""
DAY = 24 * 3600


async def test_one_green_run_beside_six_silent_dispatches_is_green(settings, github, issuer, clock, tmp_path):
    (tmp_path / "allowlist.yml").write_text(TODAY)
    async with running(settings, github=github, issuer=issuer, app=github.app, clock=clock) as bot:
        for _ in range(7):
            await github.open_pull(UPSTREAM)
            await bot.settle()
        for backend in (L2, L3):
            step = client.of(bot, bot.dispatch(backend))
            await step.started()
            await step.ended("success")
        await bot.wait(DAY + 120)
        _, summary = await bot.get("/api/oot/summary")
        found = {one["repo"]: one for one in summary["backends"]}
        for backend in (L2, L3):
            numbers = found[backend]
            assert (numbers["pass_rate"], numbers["runs"], numbers["not_run"]) == (1.0, 1, 6)
            assert (numbers["grade"], numbers["never_started"]) == ("green", 0)
        assert (found[L4]["never_started"], found[L4]["grade"]) == (7, "red")  # a gate waited for it
        assert found[L1]["not_run"] == found[L1]["never_started"] == 0  # nobody expects anything


@pytest.mark.parametrize(
    ("events", "ended"), [("", "not_run"), ("{events: [pull_request, push]}", "never_started")]
)
async def test_who_lists_no_pushes_need_not_answer_them_even_at_l4(bot, github, events, ended):
    """Its workflow may be for pull requests only: today the relay sends it pushes all the same."""
    await bot.list_backends(f"L4: [{{{L4}: {events}}}]")
    await github.push(UPSTREAM, "main", message="a change")
    await bot.wait(DAY + 120)
    (dispatch,) = await bot.rows("oot_dispatch")
    assert (dispatch["event_type"], dispatch["state"]) == ("push", ended)
    _, summary = await bot.get("/api/oot/summary")
    (numbers,) = [one for one in summary["backends"] if one["repo"] == L4]
    assert numbers["never_started"] == (ended == "never_started")


# Who may report and what is dispatched: today's audience, callers nobody listed, pushes, the end of a draft.


WITH_AND_WITHOUT = pytest.mark.parametrize("preset", ["crcr", nightly(None)])  # see test_differences


async def dispatched(bot, github):
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    return pull


@WITH_AND_WITHOUT
async def test_todays_audience_is_accepted_beside_ours(bot, github, preset):
    await dispatched(bot, github)
    to_l2 = bot.dispatch(L2)
    ours = await bot.report(to_l2, status="in_progress", claims={"audience": "ootbot"})
    theirs = await bot.report(to_l2, claims={"audience": AUDIENCE})
    assert ours[0] == 200
    assert theirs[0] == (200 if preset else 401)


@WITH_AND_WITHOUT
@pytest.mark.parametrize("caller", [L1, "stranger/fork"])
async def test_whoever_may_not_report_is_ignored(bot, github, caller, preset):
    await dispatched(bot, github)
    status, answer = await bot.report(bot.dispatch(L2), claims={"repository": caller})
    assert (status, answer.get("status")) == ((200, "ignored") if preset else (403, None))
    assert await bot.rows("oot_workflow_job") == []


@WITH_AND_WITHOUT
async def test_a_push_goes_to_whoever_names_no_events(bot, github, preset):
    await github.push(UPSTREAM, "main", message="a change")
    await bot.settle()
    assert [dispatch.event_type for dispatch in github.dispatches] == ["push"] * (4 if preset else 0)
    _, allowlist = await bot.get("/api/oot/allowlist")
    events = ["pull_request", "push"] if preset else ["pull_request"]
    assert [entry["events"] for entry in allowlist["entries"]] == [events] * 4


@WITH_AND_WITHOUT
async def test_the_end_of_a_draft_is_no_second_run(bot, github, preset):
    pull = await github.open_pull(UPSTREAM, draft=True)
    await bot.settle()
    await github.ready_for_review(pull)
    await bot.settle()
    actions = ["opened"] if preset else ["opened", "ready_for_review"]
    assert pull_actions(github) == actions
    await github.push(UPSTREAM, "release", message="a branch")
    await github.retarget(pull, "release")
    await bot.settle()
    assert pull_actions(github) == [*actions, "edited"]  # results for another branch say nothing


def pull_actions(github):
    """Return the actions of the pull request that one backend was told."""
    told = [
        each for each in github.dispatches if each.repo.full_name == L4 and each.event_type == "pull_request"
    ]
    return [each.client_payload["payload"]["action"] for each in told]


# Pushes, tags and deletions: to everybody who names no events, as from today's relay.


@WITH_AND_WITHOUT
async def test_tags_and_deletions_go_to_everybody_under_the_preset(bot, github, preset):
    everybody = [L2, L3, L4, L1] if preset else []
    await github.push(UPSTREAM, "refs/tags/v1")
    await bot.settle()
    assert sorted(one.repo.full_name for one in github.dispatches) == sorted(everybody)
    (pushed,) = [one for one in github.deliveries if one.event == "push"]
    gone = pushed.payload | {"deleted": True, "before": pushed.payload["after"], "after": "0" * 40}
    await github.deliver("push", gone | {"commits": [], "head_commit": None})
    await bot.settle()
    assert len(github.dispatches) == 2 * len(everybody)
    sent = [one.client_payload["payload"]["ref"] for one in github.dispatches]
    assert set(sent) == ({"refs/tags/v1"} if preset else set())


async def test_a_nightly_report_is_taken_from_whoever_is_at_l2(bot, github):
    commit = github.state.repo(UPSTREAM).branches["main"]
    body = {
        "event_type": "nightly",
        "delivery_id": commit,
        "workflow": {
            "schema_version": "1.0", "status": "completed", "conclusion": "success", "name": "Nightly",
            "url": "https://ci.example/1", "run_id": "7", "run_attempt": 1, "job_name": "all",
        },
    }  # fmt: skip
    for backend in (L2, L3, L4):
        token = bot.issuer.mint(repository=backend, run_id="7", run_attempt=1)
        headers = {"Authorization": f"Bearer {token}"}
        answer = await bot.request("POST", "/api/oot/callback", json=body, headers=headers)
        assert answer == (200, {"ok": True, "status": "completed"})
    await bot.settle()
    assert (await bot.get(f"/api/oot/backends/{L2}"))[1]["backend"]["pass_rate"] == 1.0


# Under the preset, no report within our limits that today's relay accepts is refused.


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
