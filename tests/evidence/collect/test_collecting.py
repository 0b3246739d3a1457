"""From the end of a job or run to its log and artifacts, through GitHub's webhooks and API."""

from __future__ import annotations

import pytest

from bot.evidence.collect import blobs, parser_pool
from tests.harness import L1, L2, UPSTREAM
from tests.serving import SQLITE

LOG = "2026-11-22T10:00:00.0000000Z one\n2026-11-22T10:00:01.0000000Z ##[error]broken\n"
WANTED = SQLITE  # what is decided here does not depend on the database


async def ended_job(
    github, *, conclusion="failure", name="linux / test (default, 1, 2, linux.large)", log=LOG, **run
):
    """A run of one job; returns the run and the job once the job has ended."""
    started = await github.start_run(run.pop("repo", UPSTREAM), event=run.pop("event", "pull_request"), **run)
    job = await github.start_job(started, name)
    await github.finish_job(job, conclusion, log=log)
    return started, job


async def fetches(bot):
    return {
        (row["kind"], row["object_id"]): (row["state"], row["error"]) for row in await bot.rows("ci_fetch")
    }


def temporary_files(bot):
    """What lies in the folder for temporary files, but for the lock of the process."""
    found = (bot.context.settings.data_dir / "tmp").rglob("*")
    return [path.name for path in found if path.is_file() and path.name != "lock"]


@pytest.mark.logic
async def test_the_log_of_a_failed_job_is_there_while_its_run_goes_on(bot, github, received):
    run, job = await ended_job(github)
    await bot.settle(horizon=6)
    assert await fetches(bot) == {("log", job.id): ("stored", None)}
    ((fetched, answer, blob),) = received
    assert answer == {"lines": 2, "last": LOG.splitlines()[-1].encode()}
    assert (fetched.repo, fetched.job_id, fetched.run_id) == (UPSTREAM, job.id, run.id)
    assert (fetched.trusted, fetched.private, fetched.head_sha) == (False, False, run.head_sha)
    stored = await blobs.open_blobs(bot.context.settings).get(blob)
    assert stored == b"kept " + LOG.encode()
    assert temporary_files(bot) == []


@WANTED
async def test_artifacts_are_listed_attributed_and_read_once_the_run_ends(bot, github, received):
    run, job = await ended_job(github)
    report = github.add_artifact(
        run, f"test-reports-test-default-1-2-linux.large_{job.id}", {"a.xml": b"<a/>"}
    )
    other = github.add_artifact(run, "wheels", {"torch.whl": b"w" * 1000})
    await github.finish_run(run, "failure")
    await bot.settle(horizon=15)
    rows = {row["id"]: row for row in await bot.rows("ci_artifact")}
    assert (rows[report.id]["kind"], rows[report.id]["job_id"]) == ("junit", job.id)
    assert (rows[other.id]["kind"], rows[other.id]["job_id"]) == ("other", None)
    assert rows[report.id]["digest"] == report.digest
    assert (await fetches(bot))["artifact", report.id] == ("parsed", None)
    assert ("artifact", other.id) not in await fetches(bot)
    assert {"a.xml": 4} in [answer for _, answer, _ in received]
    # delivered again: nothing twice
    count = len(received)
    for delivery in list(github.deliveries):
        await github.redeliver(delivery)
    await bot.settle(horizon=3600)
    assert len(received) == count
    (day,) = await bot.rows("ci_storage_day")
    assert (day["artifacts"], day["bytes"]) == (2, len(report.content) + len(other.content))


@WANTED
async def test_only_the_repositorys_own_runs_on_a_trusted_branch_are_trusted(bot, github):
    fork = github.add_repo("someone/pytorch", install=[])
    runs = {
        "own": await github.start_run(UPSTREAM, event="push"),
        "fork": await github.start_run(UPSTREAM, event="pull_request", head_branch="main", head_repo=fork),
        "fork push": await github.start_run(UPSTREAM, event="push", head_branch="main", head_repo=fork),
        "branch": await github.start_run(UPSTREAM, event="push", head_branch="feature"),
    }
    await bot.send("repository", {"action": "edited", "repository": repository(github)})
    for run in runs.values():
        github.add_artifact(run, "test-results", {"a.xml": b"x"})
        await github.finish_run(run, "success")
    await bot.settle(horizon=15)
    trusted = {row["run_id"]: row["trusted"] for row in await bot.rows("ci_artifact")}
    assert {name: trusted[run.id] for name, run in runs.items()} == {
        "own": True, "fork": False, "fork push": False, "branch": False,
    }  # fmt: skip


@WANTED
async def test_ids_of_a_new_enterprise_server_are_small_and_name_their_jobs(bot, github):
    github.state.count_ids_from(501)
    run, job = await ended_job(github)
    github.add_artifact(run, f"test-results_{job.id}", {"a.xml": b"x"})
    await github.finish_run(run, "failure")
    await bot.settle(horizon=15)
    (row,) = [one for one in await bot.rows("ci_artifact") if one["run_id"] == run.id]
    assert (job.id < 1_000, row["job_id"]) == (True, job.id)


@WANTED
async def test_a_tag_named_like_a_trusted_branch_is_not_that_branch(bot, github):
    sha = await github.push(UPSTREAM, files={"a.py": "1"})
    branch = await github.start_run(UPSTREAM, event="push", head_sha=sha)
    sha = await github.push(UPSTREAM, "refs/tags/main", files={"a.py": "2"})
    tag = await github.start_run(UPSTREAM, event="push", head_branch="main", head_sha=sha)
    await bot.send("repository", {"action": "edited", "repository": repository(github)})
    for run in (branch, tag):
        github.add_artifact(run, "test-results", {"a.xml": b"x"})
        await github.finish_run(run, "success")
    await bot.settle(horizon=15)
    trusted = {row["run_id"]: row["trusted"] for row in await bot.rows("ci_artifact")}
    assert (trusted[branch.id], trusted[tag.id]) == (True, False)


def repository(github):
    from bot.demo.github.serializers.repository import repository as show

    return show(github.state, github.state.repo(UPSTREAM))


@WANTED
async def test_an_artifact_of_another_head_repository_is_refused_and_one_of_another_job_flagged(
    bot, github, received
):
    run, _ = await ended_job(github)
    fork = github.add_repo("someone/pytorch", install=[])
    await bot.settle()
    run.head_repo = fork  # what the list says from now on
    run.updated_at += 1000
    odd = github.add_artifact(run, "test-results", {"a.xml": b"x"})
    foreign = github.add_artifact(run, "junit_99000001", {"a.xml": b"x"})
    from bot.demo.github.serializers import actions

    body = actions.serialize_run(github.state, run) | {"status": "completed", "conclusion": "failure"}
    own = repository(github)
    body["head_repository"] = own
    await bot.send("workflow_run", {"action": "completed", "workflow_run": body, "repository": own})
    await bot.settle(horizon=15)
    flags = {row["id"]: row["flags"] for row in await bot.rows("ci_artifact")}
    assert flags[odd.id] == ["foreign_head"]
    assert flags[foreign.id] == ["foreign_job", "foreign_head"]
    assert (await fetches(bot))["artifact", odd.id][0] == "refused"


@pytest.mark.parametrize(
    ("collecting", "repo", "expected"),
    [
        ({"ci": ("upstream",)}, UPSTREAM, True),
        ({"ci": ("upstream",)}, L2, False),
        ({"ci": ("backends",)}, L2, True),
        ({"ci": ("backends",)}, L1, False),
        ({"ci": ()}, UPSTREAM, False),
        ({}, UPSTREAM, True),
        ({"ci_workflows": ("C?",)}, UPSTREAM, True),
        ({"ci_workflows": ("lint*",)}, UPSTREAM, False),
        ({"ci_workflows": ("*", "!*ci.yml")}, UPSTREAM, True),  # a job's record has no path
        ({"ci_workflows": ("!ci",)}, UPSTREAM, False),
        ({"ci_logs": "off"}, UPSTREAM, False),
    ],
    indirect=["collecting"],
)
@WANTED
async def test_the_settings_say_whose_logs_are_fetched(bot, github, repo, expected):
    _, job = await ended_job(github, repo=repo)
    await bot.settle(horizon=6)
    assert ((await fetches(bot)).get(("log", job.id), ("",))[0] == "stored") is expected


@pytest.mark.parametrize(
    ("collecting", "states"),
    [({}, {"failure": "stored"}), ({"ci_logs": "all"}, {"failure": "stored", "success": "stored"})],
    indirect=["collecting"],
)
@WANTED
async def test_logs_of_jobs_that_passed_are_fetched_only_if_all_are_wanted(bot, github, states):
    run = await github.start_run(UPSTREAM, event="push")
    jobs = {name: await github.start_job(run, name) for name in ("failure", "success", "skipped")}
    for name, job in jobs.items():
        await github.finish_job(job, name)
    await github.finish_run(run, "failure")
    await bot.settle(horizon=30)
    found = await fetches(bot)
    assert {name: found["log", job.id][0] for name, job in jobs.items() if ("log", job.id) in found} == states


@WANTED
async def test_a_job_that_never_started_has_no_log_and_github_is_not_asked(bot, github):
    run = await github.start_run(UPSTREAM)
    job = await github.queue_job(run, "never")
    await github.finish_job(job, "cancelled")
    await bot.settle(horizon=60)
    assert await fetches(bot) == {("log", job.id): ("absent", "GitHub kept no log: the job never started")}
    assert not [call for call in github.calls if "/jobs/" in call.path]


@WANTED
async def test_a_log_that_comes_late_is_found_and_one_that_never_comes_is_absent(bot, github, clock):
    github.faults.add(path="/logs$", status=404, times=3)
    _, job = await ended_job(github)
    await bot.settle(horizon=6)
    assert (await fetches(bot))["log", job.id][0] == "wanted"
    await bot.wait(75)
    assert (await fetches(bot))["log", job.id][0] == "wanted"
    await bot.wait(605)
    assert (await fetches(bot))["log", job.id] == ("stored", None)
    github.faults.add(path="/logs$", status=404, times=50)
    _, late = await ended_job(github)
    await bot.wait(2 * 3600)
    assert (await fetches(bot))["log", late.id] == ("absent", "GitHub had none")
    assert sum(call.path.endswith(f"/jobs/{late.id}/logs") for call in github.calls) in {
        5,
        6,
    }  # a fresh token counts twice


@pytest.mark.parametrize(
    ("fault", "state", "words"),
    [
        ({"status": 410}, "expired", "GitHub has deleted it"),
        ({"status": 403}, "forbidden", f"the App may not read Actions in {UPSTREAM}: grant actions: read"),
        ({"status": 451}, "broken", "GitHub answered 451"),
    ],
)
@WANTED
async def test_what_github_refuses_is_said_in_words(bot, github, fault, state, words):
    github.faults.add(path="/logs$", **fault)
    _, job = await ended_job(github)
    await bot.settle(horizon=6)
    assert (await fetches(bot))["log", job.id] == (state, words)


@WANTED
async def test_what_was_forbidden_is_asked_for_again_after_a_day(bot, github):
    github.faults.add(path="/logs$", status=403)
    _, job = await ended_job(github)
    run_row = github.state.repo(UPSTREAM).runs[job.run.id]
    await github.finish_run(run_row, "failure")
    await bot.settle(horizon=6)
    await bot.wait(12 * 3600)
    assert (await fetches(bot))["log", job.id][0] == "forbidden"
    await bot.wait(13 * 3600)
    assert (await fetches(bot))["log", job.id][0] == "stored"


@pytest.mark.parametrize(
    "fault",
    [
        {"status": 500},
        {"status": 403},  # the address has expired
        {"drop": True, "when": "after"},
        {"status": 404},
    ],
)
@WANTED
async def test_a_download_that_fails_is_repeated(bot, github, fault):
    github.faults.add(method="BLOB", path="logs/", times=2, **fault)
    _, job = await ended_job(github)
    await bot.settle(horizon=6)
    assert (await fetches(bot))["log", job.id][0] == "wanted"
    await bot.wait(120)
    assert (await fetches(bot))["log", job.id] == ("stored", None)


@WANTED
async def test_an_artifact_with_a_wrong_digest_a_truncated_one_and_an_expired_one(bot, github, received):
    run = await github.start_run(UPSTREAM, event="push")
    wrong = github.add_artifact(run, "junit-wrong", {"a.xml": b"x"})
    wrong.digest = "sha256:" + "0" * 64
    cut = github.add_artifact(
        run, "junit-cut", github.add_artifact(run, "junit-whole", {"a.xml": b"x" * 5000}).content[:-30]
    )
    old = github.add_artifact(run, "junit-old", {"a.xml": b"x"}, retention=1000)
    await github.finish_run(run, "success")
    await bot.wait(3 * 3600)
    found = await fetches(bot)
    assert found["artifact", wrong.id][0] == "broken"
    assert "another digest" in found["artifact", wrong.id][1]
    assert (found["artifact", cut.id][0], "ZIP" in found["artifact", cut.id][1]) == ("broken", True)
    assert found["artifact", old.id][0] == "expired"
    assert found["artifact", old.id][1].startswith("GitHub deleted it on 20")
    assert [fetched.name for fetched, _, _ in received] == ["junit-whole"]


@WANTED
async def test_a_redirect_into_our_network_or_to_this_bot_is_refused(bot, github):
    github.faults.add(path="/logs$", status=302, headers={"Location": bot.url + "/metrics"})
    _, job = await ended_job(github)
    await bot.settle(horizon=6)
    assert (await fetches(bot))["log", job.id] == ("refused", "it leads to this bot itself")


@WANTED
async def test_lost_deliveries_are_made_up_for(bot, github):
    github.faults.add(method="HOOK", path="workflow_(run.completed|job.completed)", drop=True, times=2)
    run, job = await ended_job(github)
    github.add_artifact(run, "junit", {"a.xml": b"x"})
    await github.finish_run(run, "failure")
    await bot.settle(horizon=60)
    assert await fetches(bot) == {}
    await bot.wait(3 * 3600)
    await bot.wait(60)
    found = await fetches(bot)
    assert found["log", job.id] == ("stored", None)
    assert "parsed" in {state for (kind, _), (state, _) in found.items() if kind == "artifact"}


@pytest.mark.logic
async def test_with_a_full_disk_nothing_is_collected_and_deliveries_go_on(bot, github, received, monkeypatch):
    monkeypatch.setattr(parser_pool, "LEAST_FREE", 2**62)
    _, job = await ended_job(github)
    await bot.settle(horizon=10)
    _, answer = await bot.get(f"/api/ci/jobs/{UPSTREAM}/{job.id}")
    assert (answer["log"]["state"], answer["log"]["reason"]) == ("wanted", "disk full")
    await github.open_pull(UPSTREAM)
    await bot.settle()
    assert len(await bot.rows("oot_dispatch")) == 4
    monkeypatch.setattr(parser_pool, "LEAST_FREE", 0)
    await bot.settle(horizon=700)
    assert (await bot.get(f"/api/ci/jobs/{UPSTREAM}/{job.id}"))[1]["log"]["state"] == "stored"


@pytest.mark.parametrize("collecting", [{"ci_calls_per_hour": 60}], indirect=True)
@WANTED
async def test_collecting_keeps_to_its_budget_and_goes_on_later(bot, github, clock):
    jobs = [(await ended_job(github))[1] for _ in range(30)]
    began = clock.now()
    await bot.settle(horizon=6)
    fetched = [state for state, _ in (await fetches(bot)).values()]
    assert 5 <= fetched.count("stored") <= 12  # a sixth of an hour's budget at once
    assert fetched.count("wanted") == 30 - fetched.count("stored")
    await bot.wait(3600)
    calls = [call for call in github.calls if call.path.endswith("/logs")]
    assert all(state == "stored" for state, _ in (await fetches(bot)).values())
    assert len(calls) == len(jobs)
    assert sum(call.at < began + 600_000 for call in calls) <= 22


@WANTED
async def test_large_archives_are_not_fetched_whole_for_one_member(bot, github, received):
    import random

    noise = random.Random(1).randbytes(9 * 1024 * 1024)
    run = await github.start_run(UPSTREAM, event="push")
    made = github.add_artifact(run, "usage-log-a", {"noise": noise, "deep/usage_log.txt": b"line\n" * 100})
    await github.finish_run(run, "success")
    await bot.settle(horizon=15)
    assert (await fetches(bot))["artifact", made.id] == ("parsed", None)
    ((_, answer, _),) = received
    assert answer == {"deep/usage_log.txt": 500}
    assert all("Range" in request.headers for request in github.blob_host.requests)


@WANTED
async def test_no_credential_goes_to_the_host_of_logs(bot, github):
    await ended_job(github)
    await bot.settle(horizon=6)
    (request,) = github.blob_host.requests
    assert not {"Authorization", "Cookie"} & set(request.headers)
