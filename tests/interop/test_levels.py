"""Levels, demotions and nightlies as today's tools ask for them, and the addresses that its dashboards ask."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest

from tests.harness import L1, L2, L3, L4, UPSTREAM, running
from tests.interop import client
from tests.interop.client import Client
from tests.samples import nightly

pytestmark = pytest.mark.logic


# Levels as today's tools ask for them: who is to be demoted, by which criteria, and what lowered the numbers.


HOUR = 3600


async def run(bot, github, *conclusions, repo=L3, wait=60, took=600, **inputs):
    """Open a pull request, and report on a job of one run for each conclusion."""
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    bot.clock.advance(wait)
    payload = bot.dispatch(repo).client_payload
    steps = [
        Client(bot, repo, payload, job=f"job-{at}", run_id=str(900 + pull.number), audience="ootbot")
        for at in range(len(conclusions))
    ]
    for step in steps:
        await step.started()
    bot.clock.advance(took)
    for step, conclusion in zip(steps, conclusions, strict=True):
        await step.ended(conclusion, **(inputs if conclusion == "failure" else {}))
    await bot.settle()
    return pull


async def status_of(bot, repo=L3):
    status, answer = await bot.get("/api/crcr/level-status")
    assert status == 200
    assert [one["repo"] for one in answer["repos"]] == [repo]
    return answer["repos"][0]


async def test_silence_is_said_and_demotes_nobody(bot):
    found = await status_of(bot)
    assert found == {
        "repo": L3, "level": "L3", "change": None, "noData": True, "windowDays": 7, "sharedFailures": 0,
        "criteria": [
            {"criterion": "End-to-End Time (P50)", "measured": "–", "target": "< 3 h", "met": None},
            {"criterion": "Timeout Rate", "measured": "–", "target": "< 1%", "met": None},
            {"criterion": "Job Pass Rate", "measured": "–", "target": "≥ 90%", "met": None},
        ],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("conclusions", "took", "missed"),
    [
        (["success"] * 9 + ["failure"], 600, set()),
        nightly(["success"] * 8 + ["failure"] * 2, 600, {"Job Pass Rate"}),
        nightly(["success"] * 19 + ["timed_out"], 600, {"Timeout Rate"}),
        (["success"] * 3, 4 * HOUR, {"End-to-End Time (P50)"}),
    ],
    ids=["kept", "pass rate", "timeouts", "time"],
)
async def test_one_missed_criterion_calls_for_demotion(bot, github, conclusions, took, missed):
    await run(bot, github, *conclusions, took=took)
    found = await status_of(bot)
    assert {one["criterion"] for one in found["criteria"] if one["met"] is False} == missed
    assert found["change"] == ("demote" if missed else None)
    assert not found["noData"]
    bot.clock.advance(8 * 24 * HOUR)
    await bot.settle()
    assert (await status_of(bot))["noData"]


async def test_the_page_names_what_lowered_the_numbers_and_the_levels_so_far(bot, github):
    pull = await run(bot, github, "success", "failure", "timed_out")
    _, page = await bot.get(f"/oot/{L3}")
    block = page.partition("What lowered its pass rate in the last 7 days")[2]
    assert f"job-1 on #{pull.number}: failure" in block
    assert f"job-2 on #{pull.number}: timed out" in block
    assert "job-0" not in block.partition("</ul>")[0]
    assert f"https://github.com/{L3}/actions/runs/{900 + pull.number}" in block
    await bot.list_backends(f"L2: [{L3}]")
    _, page = await bot.get(f"/oot/{L3}")
    levels = page.partition("Levels so far")[2]
    assert levels.index("L2 since 2026-") < levels.index("L3 since 2026-")


@pytest.mark.parametrize("preset", ["crcr", None])
async def test_the_criteria_of_the_relay_are_beside_ours_under_the_preset(bot, github, preset):
    await run(bot, github, "success", wait=31 * 60, repo=L2)
    _, page = await bot.get("/oot/levels")
    assert ("L3 by the relay's criteria: 14 days" in page.replace("&#39;", "'")) is bool(preset)
    if preset:
        row = next(row for row in page.partition('id="relay"')[2].split("<tr>") if f"/oot/{L2}" in row)
        assert "31 min" in row
        assert row.count('class="bad"') == 2  # the queue, and the time at L2


@pytest.mark.parametrize("preset", ["crcr", None])
async def test_the_first_job_of_a_run_alone_has_waited(bot, github, preset):
    await run(bot, github, "success", "success", "success")
    jobs = sorted(await bot.rows("oot_workflow_job"), key=lambda row: row["job_name"])
    waits = [row["queue_time"] is not None for row in jobs]
    assert waits == ([True, False, False] if preset else [True] * 3)
    assert round(jobs[0]["queue_time"]) == 60


async def test_a_run_that_never_started_is_dispatched_again_on_request(bot, github):
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    await bot.wait(25 * HOUR)
    before = len(github.dispatches)
    lost = {row["backend"] for row in await bot.rows("oot_dispatch") if row["state"] == "never_started"}
    assert lost
    await github.comment(pull, "/oot rerun", by="octocat")
    await bot.settle()
    again = {one.repo.full_name for one in github.dispatches[before:]}
    assert again == lost
    repo = lost.pop()
    step = client.of(bot, bot.dispatch(repo))
    await step.ended()
    await bot.settle()
    assert [row["conclusion"] for row in await bot.rows("oot_workflow_job")] == ["success"]


# An open pull request on `crcr-demotion/<repo>` stops an L3 backend's new check runs, as today.


LABEL = "ciflow/crcr/npu"


@pytest.fixture
async def pull(bot, github):
    made = await github.open_pull(UPSTREAM, labels=[LABEL])
    await bot.settle()
    return made


def shown(bot, pull):
    """Return how the jobs of backends stand on a pull request."""
    return {
        name.partition("/CI/")[2]: seen[1] or seen[0]
        for name, seen in bot.checks(UPSTREAM, pull.head_sha).items()
        if "crcr/" in name
    }


async def demote(bot, github, repo=L3, **more):
    made = await github.open_pull(
        UPSTREAM, title=f"Demote {repo}", head_ref=f"crcr-demotion/{repo}", **({"from_fork": False} | more)
    )
    await bot.settle()
    return made


def steps(bot, pull, *jobs, repo=L3):
    (dispatch,) = [
        one for one in bot.github.dispatches
        if one.repo.full_name == repo and one.client_payload["payload"].get("number") == pull.number
    ]  # fmt: skip
    first = client.of(bot, dispatch, job=jobs[0])
    return [first, *(Client(bot, repo, first.client_payload, job=job) for job in jobs[1:])]


async def test_no_check_run_begins_until_it_is_closed(bot, github, pull):
    build, test, last = steps(bot, pull, "build", "test", "last")
    await build.started()
    await bot.settle()
    demotion = await demote(bot, github)
    await build.ended("failure")
    await test.ended("failure")
    await bot.settle()
    assert shown(bot, pull) == {"build": "failure"}  # one that had begun is finished
    _, page = await bot.get(f"/oot/{L3}")
    assert f"{UPSTREAM}#{demotion.number} proposes to demote it" in page
    _, answer = await bot.get(f"/api/oot/backends/{L3}")
    assert {job["job_name"] for job in answer["jobs"]} == {"build", "test"}  # all else goes on
    await github.close(demotion)
    await bot.settle()
    await last.ended()
    await bot.settle()
    assert shown(bot, pull) == {"build": "failure", "test": "failure", "last": "success"}
    assert "proposes to demote it" not in (await bot.get(f"/oot/{L3}"))[1]


@pytest.mark.parametrize("preset", ["crcr", None])
async def test_a_check_run_that_has_begun_ends_though_its_run_is_repeated_meanwhile(
    bot, github, pull, preset
):
    (build,) = steps(bot, pull, "build")
    build.audience = "ootbot"
    again = Client(bot, L3, build.client_payload, job="build", run_attempt="2", audience="ootbot")
    await build.started()
    await bot.settle()
    demotion = await demote(bot, github)
    await again.started()
    await again.ended("success")
    await bot.settle()
    name = f"crcr/{L3}/CI/build" if preset else "oot / npu"
    begun = [run for run in github.check_runs_all(UPSTREAM, pull.head_sha) if run.name == name]
    ended = (
        "neutral" if preset else "success"
    )  # a new one would have taken its place; or it shows the newest run
    assert [(run.status, run.conclusion) for run in begun] == [("completed", ended)]
    await github.close(demotion)
    await bot.settle()
    await Client(bot, L3, build.client_payload, job="test", run_attempt="2", audience="ootbot").ended(
        "success"
    )
    await bot.settle()
    assert bot.checks(UPSTREAM, pull.head_sha)[name][:2] == ("completed", "success")


async def test_what_a_stranger_writes_into_a_pull_request_demotes_nobody(bot, github, pull):
    """Its fork may be gone, have the name of upstream, or be where the pull request is."""
    theirs = await demote(bot, github, from_fork=True)
    (*_, opened) = [one for one in github.deliveries if one.event == "pull_request"]
    body, upstream = opened.payload["pull_request"], opened.payload["repository"]
    fork = body["head"]["repo"] | {"full_name": "mallory/pytorch"}
    gone = body | {"head": body["head"] | {"repo": None}}
    named = body | {"head": body["head"] | {"repo": fork | {"full_name": UPSTREAM}}}
    within = body | {"head": body["head"] | {"repo": fork}, "base": body["base"] | {"repo": fork}}
    for number, (told, where) in enumerate([(gone, upstream), (named, upstream), (within, fork)]):
        told |= {"id": 77_000 + number, "number": 7_700 + number}
        await bot.send("pull_request", opened.payload | {"pull_request": told, "repository": where})
    await bot.settle()
    (build,) = steps(bot, pull, "build")
    await build.ended()
    await bot.settle()
    assert shown(bot, pull) == {"build": "success"}
    assert theirs.from_fork


async def test_what_demotes_nobody(bot, github, pull):
    await demote(bot, github, from_fork=True)  # anyone can have such a branch
    for repo in ("org/other", f"{L3}-2", ""):
        await demote(bot, github, repo)
    (build,) = steps(bot, pull, "build")
    await build.ended()
    await bot.settle()
    assert shown(bot, pull) == {"build": "success"}
    assert "proposes to demote it" not in (await bot.get(f"/oot/{L3}"))[1]


async def test_a_gate_is_not_lifted_by_it(bot, github, pull):
    await demote(bot, github, L4)
    (build,) = steps(bot, pull, "build", repo=L4)
    await build.ended("failure")
    await bot.settle()
    assert shown(bot, pull) == {"build": "failure"}
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / gate"][1] == "failure"


# Nightlies are builds: each run has its line, with its times and its link, also where it says no commit.


def iso(bot, ago):
    return datetime.fromtimestamp(bot.clock.now() // 1000 - ago, UTC).isoformat().replace("+00:00", "Z")


async def build(bot, run_id, conclusion, *, repo=L2, delivery=None, minutes=90, **more):
    """Report on a build that a timer began."""
    step = Client(bot, repo, run_id=run_id, job="all", workflow="Nightly")
    times = {"started_at": iso(bot, minutes * 60), "completed_at": iso(bot, 0)}
    return await step.nightly(delivery or f"buildkite-{run_id}-all", conclusion, **times | more)


def lines(page):
    """Return the first cell and the cell of the job of each line of the grid, in words."""
    grid = page.partition('<table class="grid">')[2].partition("</table>")[0]
    rows = grid.partition("<tbody>")[2].split("<tr>")[1:]
    return [" ".join(re.sub(r"<[^>]*>", " ", row).split()) for row in rows]


@pytest.mark.parametrize("commit", [None, "a" * 40], ids=["without a commit", "of one commit"])
async def test_the_red_one_of_three_builds_is_seen(bot, commit):
    for run_id, conclusion in (("701", "success"), ("702", "failure"), ("703", "success")):
        await build(bot, run_id, conclusion, delivery=commit)
        bot.clock.advance(86_400)
    await bot.settle()
    _, page = await bot.get(f"/oot/{L2}?tab=nightly")
    found = lines(page)
    assert [re.search(r"build (\d+)", line)[1] for line in found] == ["703", "702", "701"]
    assert ["failed" in line for line in found] == [False, True, False]
    assert "+2" not in page
    for run_id in ("701", "702", "703"):
        assert f'href="https://github.com/{L2}/actions/runs/{run_id}"' in page


async def test_reported_times_are_shown(bot):
    await build(bot, "701", "success")
    await bot.settle()
    _, page = await bot.get(f"/oot/{L2}?tab=nightly")
    latest = page.partition('id="latest"')[2]
    assert "1 h 30 min" in latest


async def test_who_has_nightlies_only_lands_on_them(bot, github):
    await build(bot, "701", "failure")
    await bot.settle()
    status, page = await bot.get(f"/crcr/{L2}?days=7")
    assert status == 200
    assert 'aria-current="true">Nightly' in page
    assert "build 701" in lines(page)[0]
    assert 'aria-current="true">7' in page
    _, page = await bot.get(f"/oot/{L2}?tab=pulls")
    assert 'aria-current="true">Pull requests' in page
    await github.open_pull(UPSTREAM)
    await bot.settle()
    await Client(bot, L2, bot.dispatch(L2).client_payload).ended()
    await bot.settle()
    assert 'aria-current="true">Pull requests' in (await bot.get(f"/oot/{L2}"))[1]


@pytest.mark.parametrize(
    ("asked", "ours"),
    [
        ("/crcr?days=7&level=2", "/oot?days=7&level=2"),
        (f"/crcr/{L2}?tab=nightly&days=7", f"/oot/{L2}?tab=nightly&days=7"),
        ("/crcr/metrics?days=90", "/oot/metrics?days=90"),
    ],
)
async def test_redirects_keep_their_query(bot, asked, ours):
    async with bot.http.get(bot.url + asked, allow_redirects=False) as answer:
        assert (answer.status, answer.headers["Location"]) == (302, ours)
    assert (await bot.get(asked))[0] == 200


async def test_a_build_that_names_anothers_run_is_its_own(bot):
    await build(bot, "701", "success")
    step = Client(bot, L3, run_id="702", job="all", workflow="Nightly")
    fields = step.fields("completed", "failure", {"run_id": "701"})
    body = {
        "event_type": "nightly", "delivery_id": "buildkite-701-all",
        "payload": {"repository": {"full_name": UPSTREAM}}, "workflow": fields,
    }  # fmt: skip
    await step.post(body)  # the run is that of its token
    await bot.settle()
    jobs = {row["downstream_repo"]: row for row in await bot.rows("oot_workflow_job")}
    assert {repo: (row["run_id"], row["conclusion"]) for repo, row in jobs.items()} == {
        L2: ("701", "success"),
        L3: ("702", "failure"),
    }
    assert jobs[L3]["flags"]["run_id_mismatch"]
    assert len(lines((await bot.get(f"/oot/{L2}?tab=nightly"))[1])) == 1


# Addresses and JSON that today's dashboards ask for.


@pytest.mark.parametrize(
    ("asked", "ours"), [("/crcr", "/oot"), (f"/crcr/{L4}", f"/oot/{L4}")], ids=["overview", "backend"]
)
async def test_their_pages_lead_to_ours(bot, asked, ours):
    async with bot.http.get(bot.url + asked, allow_redirects=False) as answer:
        assert (answer.status, answer.headers["Location"]) == (302, ours)
    assert (await bot.get(asked))[0] == 200


async def test_the_allowlist_by_level(bot):
    assert await bot.get("/api/crcr/allowlist") == (
        200,
        {
            "L1": [{"repo": L1, "oncalls": []}],
            "L2": [{"repo": L2, "oncalls": ["alice", "bob"]}],
            "L3": [{"repo": L3, "oncalls": ["carol"]}],
            "L4": [{"repo": L4, "oncalls": ["dave"]}],
        },
    )


async def test_titles_of_pull_requests_in_the_order_asked(bot, github):
    await github.open_pull(UPSTREAM, title="First", author="octocat")
    await github.open_pull(UPSTREAM, title="Second", author="hubot")
    await bot.settle()
    status, found = await bot.get(f"/api/crcr/pr-info?repo={UPSTREAM.upper()}&prs=2,0,1,77,2")
    assert status == 200
    assert found == [
        {"prNumber": 2, "title": "Second", "author": "hubot"},
        {"prNumber": 0, "title": "", "author": ""},
        {"prNumber": 1, "title": "First", "author": "octocat"},
        {"prNumber": 77, "title": "", "author": ""},
        {"prNumber": 2, "title": "Second", "author": "hubot"},
    ]
    status, found = await bot.get(f"/api/crcr/pr-info?repo=org/other&prs={','.join(map(str, range(80)))}")
    assert (status, [one["prNumber"] for one in found]) == (200, list(range(50)))
    assert {one["title"] for one in found} == {""}


async def test_titles_of_commits_pushed_and_of_heads(bot, github):
    pull = await github.open_pull(UPSTREAM, title="Add a kernel", author="octocat")
    pushed = await github.push(UPSTREAM, "main", message="Fix it\n\nAt last.", by="hubot")
    await bot.settle()
    path = f"/api/crcr/commit-info?repo={UPSTREAM}&shas={pushed.upper()},{'f' * 40},{pull.head_sha}"
    assert await bot.get(path) == (
        200,
        [
            {"sha": pushed.upper(), "title": "Fix it", "author": "hubot"},
            {"sha": "f" * 40, "title": "", "author": ""},
            {"sha": pull.head_sha, "title": "Add a kernel", "author": "octocat"},
        ],
    )


WRONG = [
        "pr-info", "pr-info?repo=a/b", "pr-info?prs=1", "pr-info?repo=&prs=1", "pr-info?repo=a/b&prs=",
        "pr-info?repo=a/b&prs=x", "pr-info?repo=a/b&prs=-1", "pr-info?repo=nothing&prs=1",
        "pr-info?repo=a/b&repo=c/d&prs=1", "commit-info", "commit-info?repo=a/b", "commit-info?repo=a/b&shas=zz",
        "commit-info?repo=a/b&shas=,,",
]  # fmt: skip


async def test_what_is_missing_or_wrong_is_said(bot):
    for query in WRONG:
        status, answer = await bot.get(f"/api/crcr/{query}")
        assert (status, answer["error"]) == (400, "invalid_parameter"), query


async def test_a_private_upstream_is_as_unknown(settings, github, issuer, clock):
    async with running(settings, github=github, issuer=issuer, app=github.app, clock=clock) as bot:
        await github.open_pull(UPSTREAM, title="Secret plans", author="octocat")
        about = {"id": github.state.repo(UPSTREAM).id, "full_name": UPSTREAM, "private": True}
        about["updated_at"] = "2026-10-01T00:00:00Z"
        await bot.send("repository", {"action": "privatized", "repository": about})
        await bot.settle()
        head = github.state.repo(UPSTREAM).branches["main"]
        asked = f"/api/crcr/pr-info?repo={UPSTREAM}&prs=1"
        assert (await bot.get(asked))[1] == [{"prNumber": 1, "title": "", "author": ""}]
        assert (await bot.get(f"/api/crcr/commit-info?repo={UPSTREAM}&shas={head}"))[1][0]["title"] == ""
        assert (await bot.get("/api/crcr/allowlist"))[0] == 404
        admin = {"Authorization": "Bearer an admin token of ours"}
        assert (await bot.get(asked, headers=admin))[1][0]["title"] == "Secret plans"
