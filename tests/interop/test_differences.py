"""With and without the preset: every line of the migration page's table, and exactly the differences that it lists."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bot.core import files
from tests.harness import L1, L2, L3, L4, UPSTREAM, replace
from tests.interop import client
from tests.interop.client import AUDIENCE, Client, StepFailedError
from tests.samples import nightly
from tests.serving import SQLITE

pytestmark = pytest.mark.logic

PAGE = (Path(__file__).parents[2] / "docs/migrate-from-crcr.md").read_text()
TABLE = PAGE.partition("| today | here | by |\n|---|---|---|\n")[2].partition("\n\n")[0]
LINES = {today: by for today, _, by in re.findall(r"^\| (.*?) \| (.*) \| (.*?) \|$", TABLE, re.MULTILINE)}


@pytest.fixture
def settings(settings):
    return replace(settings, relay_token=client.TOKEN)


@pytest.fixture
async def pull(bot, github):
    made = await github.open_pull(UPSTREAM, draft=True)
    await bot.settle()
    return made


def step(bot, repo=L2, **options):
    return Client(bot, repo, bot.dispatch(repo).client_payload, **({"audience": "ootbot"} | options))


async def outcome(report):
    """Return 200, or the status because of which the step fails."""
    try:
        await report
    except StepFailedError as failed:
        return failed.status
    return 200


async def job(bot, repo=L2):
    _, answer = await bot.get(f"/api/oot/backends/{repo}")
    return answer["jobs"][0]


async def audience(bot, github, pull):
    return await outcome(step(bot, audience=AUDIENCE).started())


async def ignored(bot, github, pull):
    payload = bot.dispatch(L2).client_payload
    callers = [Client(bot, caller, payload, audience="ootbot") for caller in (L1, "a/stranger")]
    return [await outcome(caller.started()) for caller in callers]


async def own_run(bot, github, pull):
    return await outcome(step(bot).nightly(pull.base_sha))


async def any_id(bot, github, pull):
    return await outcome(step(bot).nightly("buildkite-7-test"))


async def silence(bot, github, pull):
    await bot.wait(25 * 3600)
    return {row["state"] for row in await bot.rows("oot_dispatch") if row["level"] == 2}


async def check_names(bot, github, pull):
    await step(bot, L4).ended("failure")
    await bot.settle()
    return sorted(bot.checks(UPSTREAM, pull.head_sha))


async def conclusions(bot, github, pull):
    await step(bot, L4).ended("failure")
    await bot.settle()
    return {seen[1] for seen in bot.checks(UPSTREAM, pull.head_sha).values()}


async def relayed(bot, github, pull):
    report = step(bot).client_payload | {"workflow": step(bot).fields("completed", "success", {})}
    status, _ = await client.forward(bot, client.envelope(report, "far/backend"), path="/api/crcr/results")
    return status


async def lacking(bot, github, pull):
    report = step(bot)
    return await outcome(report.ended("", test_results={"passed": "10"}))


async def times(bot, github, pull):
    at = datetime.fromtimestamp(bot.clock.now() // 1000, UTC).isoformat().replace("+00:00", "Z")
    await step(bot).started(started_at=at)
    return (await job(bot))["started_at"] == at


async def repeated(bot, github, pull):
    await step(bot).ended("failure", url=None)
    again = [await step(bot).ended("failure", url=None, test_results={"passed": 1}) for _ in range(2)]
    return [answer.get("duplicate", False) for answer in again]


async def legs(bot, github, pull):
    for leg, conclusion in {"1": "success", "2": "failure", "3": "success"}.items():
        await step(bot, check_run_id=leg).ended(conclusion)
    return (await job(bot))["conclusion"]


async def new_inputs(bot, github, pull):
    triage = {"schema_version": 1, "category": "infra", "confidence": "low", "summary": "no room on the disk"}
    await step(bot).ended("failure", failed_tests_detail=[{"name": "test_add"}], triage_verdict=triage)
    found = await job(bot)
    return found["failed_tests_json"], found["triage_verdict"]["summary"]


async def shared_device(bot, github, pull):
    await bot.list_backends(f"L3: {{npu: {{{L3}: alice, {L2}: [bob]}}}}")
    return [one["repo"] for one in (await bot.get("/api/crcr/allowlist"))[1]["L3"]]


async def ciflow(bot, github, pull):
    await bot.list_backends(f"L2: [{{{L2}: {{events: [pull_request, push], refs: ['refs/tags/**']}}}}]")
    await github.push(UPSTREAM, f"refs/tags/ciflow/trunk/{pull.number}")
    (*_, last) = [one for one in github.deliveries if one.event == "push"]
    await github.deliver("push", last.payload | {"after": pull.head_sha})
    await bot.settle(horizon=90)
    return {row["pr_number"] for row in await bot.rows("oot_dispatch") if row["head_sha"] == pull.head_sha}


async def demotion(bot, github, pull):
    await github.open_pull(UPSTREAM, head_ref=f"crcr-demotion/{L3}", from_fork=False)
    await bot.settle()
    return "proposes to demote it" in (await bot.get(f"/oot/{L3}"))[1]


async def builds(bot, github, pull):
    for run_id in ("7", "8"):
        await step(bot, run_id=run_id).nightly(pull.base_sha)
    page = (await bot.get(f"/oot/{L2}?tab=nightly"))[1]
    return ["build 7" in page, "build 8" in page]


async def waits(bot, github, pull):
    for job_name in ("build", "test"):
        await step(bot, job=job_name).started()
    return [row["queue_time"] is not None for row in await bot.rows("oot_workflow_job")]


async def once(bot, github, pull):
    sent = client.envelope(
        step(bot).client_payload | {"workflow": step(bot).fields("completed", "success", {})}, "far/b"
    )
    return [(await client.forward(bot, sent, path="/crcr/results"))[0] for _ in range(2)]


async def level_status(bot, github, pull):
    status, answer = await bot.get("/api/crcr/level-status")
    return status, [one["repo"] for one in answer["repos"]]


async def pushes(bot, github, pull):
    before = len(github.dispatches)
    await github.push(UPSTREAM, "release", message="a branch")
    await bot.settle()
    return len(github.dispatches) - before


async def end_of_draft(bot, github, pull):
    before = len(github.dispatches)
    bot.clock.advance(5)
    await github.ready_for_review(pull)
    await bot.settle()
    return len(github.dispatches) - before


async def slash(bot, github, pull):
    return await outcome(step(bot, path="/github/callback/").started())


async def pages(bot, github, pull):
    return [
        (await bot.get(path, allow_redirects=False))[0] for path in ("/crcr", "/crcr/metrics", f"/crcr/{L2}")
    ]


async def lists(bot, github, pull):
    return await bot.get("/api/crcr/allowlist")


async def no_comment(bot, github, pull):
    for installation in github.state.installations.values():
        granted = dict(installation.permissions)
        installation.permissions = granted | {"pull_requests": "read"}
    await step(bot, L4).ended("failure")
    await bot.settle(horizon=60)
    gate = bot.checks(UPSTREAM, pull.head_sha)["oot / gate"][1]
    return gate, len(github.comments(pull)), [row for row in await bot.rows("task") if row["state"] == "dead"]


L1_TO_L4 = {
    "L1": [{"repo": L1, "oncalls": []}],
    "L2": [{"repo": L2, "oncalls": ["alice", "bob"]}],
    "L3": [{"repo": "org/npu-backend", "oncalls": ["carol"]}],
    "L4": [{"repo": L4, "oncalls": ["dave"]}],
}
BY_JOB, BY_BACKEND = [f"crcr/{L4}/CI/build", "oot / gate"], ["oot / gate", "oot / tpu"]
PROBES = {  # the beginning of a line -> what to do, what comes of it with the preset and without
    "clients request tokens": (audience, 200, 401),
    "L1 and unlisted callers": (ignored, [200, 200], [403, 403]),
    "nightly and periodic reports": (own_run, 200, 200),
    "a nightly's `delivery_id`": (any_id, 200, 400),
    "a silent dispatch": (silence, {"not_run"}, {"not_run"}),
    "one check run for each job": (check_names, BY_JOB, BY_BACKEND),
    "several repositories": (shared_device, [L3, L2], [L3, L2]),
    "a push of `ciflow": (ciflow, {1}, {1}),
    "an open pull request": (demotion, True, True),
    "nightlies are grouped": (builds, [True, True], [True, True]),
    "a queue time": (waits, [True, False], [True, True]),
    "the HUD writes": (once, [200, 409], [200, 409]),
    "`/api/crcr/level-status`": (level_status, (200, [L3]), (200, [L3])),
    "check runs conclude": (conclusions, {"failure"}, {"failure"}),
    "the relay posts": (relayed, 200, 200),
    "a missing conclusion": (lacking, 200, 400),
    "times are those": (times, True, True),
    "a repeated report": (repeated, [False, True], [False, True]),
    "legs of a matrix": (legs, "failure", "failure"),
    "inputs `failed-tests-detail`": (new_inputs, *[([{"name": "test_add"}], "no room on the disk")] * 2),
    "pushes, tags and deletions": (pushes, 4, 0),
    "the end of a draft": (end_of_draft, 0, 4),
    "a callback address": (slash, 200, 200),
    "`/crcr`": (pages, [302] * 3, [302] * 3),
    "`/api/crcr/allowlist`": (lists, (200, L1_TO_L4), (200, L1_TO_L4)),
    "the App may lack": (no_comment, ("failure", 0, []), ("failure", 0, [])),
}


def test_the_page_lists_exactly_what_differs():
    differing = set()
    for today, by in LINES.items():
        (probe,) = [made for begins, made in PROBES.items() if today.startswith(begins)]
        assert (by == "always") == (probe[1] == probe[2]), today
        differing |= set() if by == "always" else {by.strip("`").lower()}
    assert len(LINES) == len(PROBES)
    assert differing == files.read_presets()["crcr"].keys()


EACH = [  # what holds always holds most of all without the preset
    nightly(line, preset) if preset and with_preset == without else (line, preset)
    for line, (_, with_preset, without) in PROBES.items()
    for preset in ("crcr", None)
]


@SQLITE
@pytest.mark.parametrize(("line", "preset"), EACH)
async def test_a_line_of_the_page(bot, github, pull, preset, line):
    probe, with_preset, without = PROBES[line]
    assert await probe(bot, github, pull) == (with_preset if preset else without)
