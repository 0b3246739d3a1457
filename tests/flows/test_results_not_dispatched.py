"""Results of runs that nobody dispatched: nightly ones, for a commit that GitHub must know."""

from __future__ import annotations

import re

import pytest

from bot.core.json_fields import as_time
from tests.flows.scenarios import post
from tests.harness import L2, L3, L4, UPSTREAM
from tests.serving import SQLITE


def nightly(commit, *, event="nightly", **workflow):
    said = {
        "status": "completed",
        "conclusion": "failure",
        "name": "nightly",
        "job_name": "all",
        "run_id": "77",
    }
    return {"event_type": event, "delivery_id": commit, "workflow": said | workflow}


NIGHTLY = f"L2: [{L2}, {{repo: org/other, nightly: refused}}]"


@pytest.mark.logic
async def test_u13_a_nightly_report_counts_once_github_knows_the_commit(bot, github, pull):
    commit = github.state.repo(UPSTREAM).branches["main"]
    await bot.list_backends(NIGHTLY)
    before = bot.checks(UPSTREAM, pull.head_sha)
    for event in ("nightly", "periodic"):
        assert await post(bot, nightly(commit, event=event, job_name=event), L2) == (
            200, {"ok": True, "status": "completed"})  # fmt: skip
    _, answer = await bot.get(f"/api/oot/backends/{L2}")
    marks = {row["event_type"]: row["flags"]["unverified"] for row in answer["jobs"]}
    assert marks == {"nightly": True, "periodic": True}
    await bot.settle()
    _, answer = await bot.get(f"/api/oot/backends/{L2}")
    for row in answer["jobs"]:
        assert "unverified" not in row["flags"]
        assert (row["head_sha"], row["pr_number"], row["upstream_repo"]) == (commit, None, UPSTREAM)
    assert answer["backend"]["failure"] == 2
    assert bot.checks(UPSTREAM, pull.head_sha) == before


@pytest.mark.logic
async def test_u13_a_commit_nobody_knows_is_refused_and_stays_out_of_the_statistics(bot, pull):
    await bot.list_backends(NIGHTLY)
    assert (await post(bot, nightly("f" * 40), L2))[0] == 200
    await bot.settle(horizon=300)  # a commit that is new may be unknown for two minutes
    _, answer = await bot.get(f"/api/oot/backends/{L2}")
    assert [row["flags"].get("refused") for row in answer["jobs"]] == [True]
    assert (answer["backend"]["runs"], answer["backend"]["failure"]) == (0, 0)


@SQLITE
async def test_a_nightly_report_counts_for_a_commit_of_the_repository_and_not_of_a_fork(bot, github, pull):
    await bot.list_backends(NIGHTLY)
    older = github.state.repo(UPSTREAM).branches["main"]
    head = github.set_file(UPSTREAM, "a.txt", "a")
    branched = await github.push(UPSTREAM, "release/2")
    past = await github.push(UPSTREAM, "nightly")
    await github.push(UPSTREAM, "nightly")
    github.state.repo(UPSTREAM).branches["silent"] = older
    untold = github.set_file(UPSTREAM, "b.txt", "b", branch="silent")
    await bot.settle()
    for commit in (older, head, branched, past, untold, pull.head_sha):
        assert (await post(bot, nightly(commit), L2))[0] == 200
    await bot.settle(horizon=60)
    refused = {row["head_sha"] for row in await bot.rows("oot_workflow_job") if "refused" in row["flags"]}
    assert refused == {pull.head_sha}


@pytest.mark.nightly
@SQLITE
async def test_an_upstream_we_may_not_read_leaves_nothing_unverified_for_ever(bot, github, pull):
    await bot.list_backends(NIGHTLY)
    github.faults.add(path=rf"/repos/{UPSTREAM}", status=403, body={"message": "Forbidden"}, times=100_000)
    assert (await post(bot, nightly(github.state.repo(UPSTREAM).branches["main"]), L2))[0] == 200
    await bot.wait(23 * 3600)
    (row,) = await bot.rows("oot_workflow_job")
    assert "unverified" in row["flags"]
    await bot.wait(3 * 3600)
    (row,) = await bot.rows("oot_workflow_job")
    assert "refused" in row["flags"]
    assert "unverified" not in row["flags"]


@SQLITE
async def test_a_backend_was_last_heard_of_when_it_reported_and_not_when_github_knew_the_commit(
    bot, github, pull
):
    await bot.list_backends(NIGHTLY)
    github.faults.add(path=rf"/repos/{UPSTREAM}", status=403, body={"message": "Forbidden"}, times=100_000)
    reported = bot.clock.now()
    assert (await post(bot, nightly(github.state.repo(UPSTREAM).branches["main"]), L2))[0] == 200
    await bot.wait(20 * 3600)
    github.faults.clear()
    await bot.wait(2 * 3600)
    (row,) = await bot.rows("oot_workflow_job")
    assert "unverified" not in row["flags"]
    assert "refused" not in row["flags"]
    bot.clock.advance(20 * 3600)
    _, answer = await bot.get(f"/api/oot/backends/{L2}")
    assert as_time(answer["backend"]["last_at"]) == reported
    assert answer["backend"]["stale"]


async def post_all(bot, bodies, repo):
    token = bot.issuer.mint(repository=repo, run_id="77", run_attempt=1)
    status, answer = await bot.request(
        "POST", "/api/oot/callback/batch", json={"reports": bodies}, headers={"Authorization": f"Bearer {token}"}
    )  # fmt: skip
    assert status == 200
    return answer["reports"]


def asked_of_upstream(github):
    return [call.path for call in github.calls if re.search(f"{UPSTREAM}($|/compare|/commits)", call.path)]


@pytest.mark.logic
async def test_nobody_spends_upstreams_budget_by_naming_commits(bot, github, pull):
    await bot.list_backends(NIGHTLY)
    commits = [f"{number:040x}" for number in range(100)]
    answers = await post_all(bot, [nightly(commit) for commit in commits], L2)
    assert [one["code"] for one in answers] == [200] * 60 + [429] * 40
    assert (answers[60]["error"], answers[60]["retry_after"]) == ("rate_limited", 3600)
    assert "60 commits an hour" in answers[60]["detail"]
    await bot.wait(1800)
    asked = asked_of_upstream(github)
    assert len(set(asked)) == 60
    again = [nightly(commits[0], job_name=f"{number}") for number in range(3)]
    answers = await post_all(bot, [*again, nightly(commits[99])], L2)
    assert [one["code"] for one in answers] == [200, 200, 200, 429]
    await bot.wait(60)
    assert asked_of_upstream(github) == asked, "what GitHub has said of a commit once is not asked again"
    rows = await bot.rows("oot_workflow_job")
    assert {(row["flags"].get("refused"), row["flags"].get("unverified")) for row in rows} == {(True, None)}
    await bot.wait(1800)
    assert (await post_all(bot, [nightly(commits[99])], L2))[0]["code"] == 200


BUSY = f"L2: [{{repo: {L2}, events: nightly, rate_limit: 9999}}, {{repo: {L3}, events: nightly}}]"


@pytest.mark.logic
async def test_one_backend_has_so_many_jobs_on_a_commit_at_most_and_all_of_them_are_verified(
    bot, github, pull
):
    await bot.list_backends(BUSY)
    commit, other = github.state.repo(UPSTREAM).branches["main"], "f" * 40
    many = [nightly(commit, job_name=f"job {number}") for number in range(1_002)]
    answers = [one for first in (0, 500, 1_000) for one in await post_all(bot, many[first : first + 500], L2)]
    assert [one["code"] for one in answers] == [200] * 1_000 + [413] * 2
    assert "this commit has 1000 jobs" in answers[-1]["detail"]
    answers = await post_all(bot, [many[7], many[-1], nightly(other)], L2)
    assert [one.get("error", one.get("duplicate")) for one in answers] == [True, "too_many_jobs", None]
    assert (await post(bot, nightly(commit), L3))[0] == 200
    await bot.settle()
    rows = [row for row in await bot.rows("oot_workflow_job") if row["head_sha"] == commit]
    assert len(rows) == 1_001
    assert not any({"unverified", "refused"} & row["flags"].keys() for row in rows)


@pytest.mark.logic
async def test_one_backend_has_so_much_of_failed_tests_on_a_commit_at_most(bot, pull):
    await bot.list_backends(BUSY)
    many = [{"name": f"test_{number}", "stacktrace": "x" * 4_000} for number in range(200)]
    for job in "abcde":
        said = {"failed_tests": many, "test_results": {"passed": 1, "failed": 200}}
        assert (await post(bot, nightly("f" * 40, job_name=job, **said), L2))[0] == 200
    rows = {row["job_name"]: row for row in await bot.rows("oot_workflow_job")}
    assert [len(rows[job]["failed_tests_json"] or ()) for job in "abcde"] == [200, 200, 200, 200, 0]
    assert (rows["e"]["failed_tests"], rows["e"]["flags"]["failed_tests_dropped"]) == (200, 200)


@SQLITE
async def test_a_commit_named_too_early_by_one_backend_counts_for_another_once_it_is_upstreams(
    bot, github, pull
):
    await bot.list_backends(f"L2: [{{repo: {L2}, events: nightly}}, {{repo: {L3}, events: nightly}}]")
    main = github.state.repo(UPSTREAM).branches
    before, commit = main["main"], github.set_file(UPSTREAM, "soon.txt", "soon")
    main["main"] = before  # as a fork's: known in the repository, and of none of its branches
    assert (await post(bot, nightly(commit), L2))[0] == 200
    await bot.settle(horizon=60)
    main["main"] = commit
    assert (await post(bot, nightly(commit), L3))[0] == 200
    await bot.settle(horizon=60)
    refused = {
        row["downstream_repo"]: row["flags"].get("refused") for row in await bot.rows("oot_workflow_job")
    }
    assert refused == {L2: True, L3: None}


@SQLITE
async def test_a_commit_upstream_told_of_is_known_without_a_question(bot, github, pull):
    await bot.list_backends(NIGHTLY)
    told = await github.push(UPSTREAM, "main")
    await bot.settle()
    before = len(asked_of_upstream(github))
    assert (await post(bot, nightly(told), L2))[0] == 200
    await bot.settle(horizon=60)
    (row,) = await bot.rows("oot_workflow_job")
    assert row["upstream_repo"] == UPSTREAM
    assert row["flags"].keys().isdisjoint({"unverified", "refused"})
    assert len(asked_of_upstream(github)) == before


@SQLITE
async def test_u13_what_is_no_nightly_report_is_refused(bot, pull):
    await bot.list_backends(NIGHTLY)
    cases = [
        (nightly("not-a-commit"), L2, (400, "invalid_report")),
        (nightly("a" * 39), L2, (400, "invalid_report")),
        (nightly("f" * 40, status="in_progress"), L2, (400, "invalid_report")),
        (nightly("f" * 40, event="pull_request"), L2, (404, "unknown_dispatch")),
        (nightly("f" * 40, event="push"), L2, (404, "unknown_dispatch")),
        (nightly("f" * 40), "org/other", (403, "forbidden")),
    ]
    for body, repo, expected in cases:
        status, answer = await post(bot, body, repo)
        assert (status, answer["error"]) == expected
    assert await bot.rows("oot_workflow_job") == []


@pytest.mark.logic
async def test_a_nightly_report_of_an_l4_backend_touches_no_pull_request(bot, github, pull):
    await bot.list_backends(f"L4: {{tpu: {{repo: {L4}, callback_token: required}}}}")
    before = bot.checks(UPSTREAM, pull.head_sha)
    assert (await post(bot, nightly(pull.head_sha), L4))[0] == 200
    await bot.wait(300)
    assert bot.checks(UPSTREAM, pull.head_sha) == before
    assert github.comments(pull) == []
