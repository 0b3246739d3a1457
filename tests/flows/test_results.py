"""Results that backends report: forged ones, outages, names and ids, any order."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import random
import re
import sqlite3
from types import SimpleNamespace

import pytest
import structlog

from bot.app import make_app
from bot.core.json_fields import as_time
from bot.database import make_store
from bot.features import FEATURES
from tests.flows.scenarios import green, post
from tests.harness import L2, L3, L4, UPSTREAM, replace, report_body
from tests.serving import SQLITE, serving

EVIL = "evil/evil"


def suite(dispatch, *, status="completed", conclusion="success", job="build", run_id="900"):
    return report_body(dispatch, status=status, conclusion=conclusion, job=job, run_id=run_id, attempt=1)


async def forged(bot):
    """A report that claims everything that would help it."""
    body = suite(bot.dispatch(L3))
    body["payload"] = {
        "repository": {"full_name": EVIL},
        "pull_request": {"number": 999, "head": {"sha": "e" * 40}, "labels": [{"name": "ciflow/oot/npu"}]},
    }
    body |= {"event_type": "push", "verified_repo": L4, "level": "L4"}
    return await post(bot, body, L3, run_id="901", run_attempt=3)


@pytest.mark.logic
async def test_u1_a_report_lands_on_the_commit_of_its_dispatch_whatever_it_says(bot, github, pull):
    await github.label(pull, "ciflow/oot/npu")
    await bot.settle()
    assert (await forged(bot))[0] == 200
    await bot.settle(horizon=20)
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / npu"][:2] == ("completed", "success")
    assert {run.head_sha for run in github.check_runs_all(UPSTREAM)} == {pull.head_sha}


@pytest.mark.logic
async def test_u2_a_label_in_the_report_opens_no_check_run(bot, github, pull):
    assert (await forged(bot))[0] == 200
    await bot.settle(horizon=20)
    assert "oot / npu" not in bot.checks(UPSTREAM, pull.head_sha)


@SQLITE
async def test_every_lie_is_flagged_logged_and_counted(bot, pull):
    names = (
        "backend",
        "level",
        "event_type",
        "upstream_repo",
        "pr_number",
        "head_sha",
        "labels",
        "run_id",
        "run_attempt",
    )

    async def counted():
        lines = (await bot.get("/metrics"))[1].splitlines()
        found = {}
        for name in names:
            line = f'ootbot_report_mismatches_total{{field="{name}"}}'
            found[name] = sum(float(each.rpartition(" ")[2]) for each in lines if each.startswith(line))
        return found

    before = await counted()
    with structlog.testing.capture_logs() as logs:
        assert (await forged(bot))[0] == 200
    told = [line for line in logs if "contradicts" in line["event"]]
    assert sorted(line["field"] for line in told) == sorted(names)
    assert {(line["log_level"], line["delivery"]) for line in told} == {
        ("warning", bot.dispatch(L3).client_payload["delivery_id"])
    }
    assert await counted() == {name: count + 1 for name, count in before.items()}
    (row,) = await bot.rows("oot_workflow_job")
    assert set(row["flags"]) == {"no_start", *(f"{name}_mismatch" for name in names)}
    stands = ("upstream_repo", "pr_number", "head_sha", "event_type", "run_id", "run_attempt")
    assert [row[name] for name in stands] == [UPSTREAM, pull.number, pull.head_sha, "pull_request", "901", 3]


@SQLITE
async def test_an_honest_report_contradicts_nothing(bot, github, pull):
    await github.label(pull, "ciflow/oot/npu")
    await github.push_commit(pull)
    await bot.settle()
    assert (await bot.report(bot.dispatch(L3), status="in_progress"))[0] == 200
    (row,) = await bot.rows("oot_workflow_job")
    assert row["flags"] == {}


@pytest.mark.logic
async def test_u3_a_report_is_kept_while_github_cannot_be_reached_and_is_shown_later(bot, github, pull):
    github.faults.add(path=rf"/repos/{UPSTREAM}/", status=502, times=4)
    assert (await bot.report(bot.dispatch(L4), conclusion="failure"))[0] == 200
    again = await bot.report(bot.dispatch(L4), conclusion="failure")
    assert again == (200, {"ok": True, "status": "completed", "duplicate": True})
    await bot.settle(horizon=120)
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / gate"][:2] == ("completed", "failure")


@SQLITE
async def test_u3_while_the_database_is_locked_nothing_is_half_kept_and_the_retry_succeeds(bot, pull):
    store = make_store(bot.context.settings.database, clock=bot.clock, busy_timeout=0.05, features=FEATURES)
    dispatch = bot.dispatch(L4)
    async with serving(bot, make_app(replace(bot.context, store=store))) as served:
        with contextlib.closing(sqlite3.connect(bot.context.settings.data_dir / "ootbot.db")) as other:
            other.execute("BEGIN IMMEDIATE")
            status, answer = await served.report(dispatch, job="a")
            assert (status, answer["error"]) == (503, "store_unavailable")
            answers = await asyncio.gather(*(served.report(dispatch, job=str(n)) for n in range(10)))
            assert {status for status, _ in answers} == {503}
        assert await bot.rows("oot_workflow_job") == []
        assert await bot.rows("oot_rate") == []
        assert await served.report(dispatch, job="a") == (200, {"ok": True, "status": "completed"})
    await store.close()


@SQLITE
async def test_u15_a_report_is_answered_without_a_call_to_github(bot, github, pull):
    before = len(github.calls)
    await asyncio.gather(*(bot.report(bot.dispatch(L4), job=str(n)) for n in range(20)))
    assert len(github.calls) == before


@SQLITE
async def test_u14_what_was_refused_or_came_in_the_same_moment_does_not_confuse_the_count(bot, pull):
    await bot.list_backends(f"L4: {{tpu: {{repo: {L4}, rate_limit: 5}}}}")
    dispatch = bot.dispatch(L4)
    refused = [await bot.report(dispatch, conclusion="green") for _ in range(20)]
    assert {status for status, _ in refused} == {400}
    answers = await asyncio.gather(*(bot.report(dispatch, job=str(n)) for n in range(12)))
    assert sorted(status for status, _ in answers) == [200] * 5 + [429] * 7
    assert len(await bot.rows("oot_workflow_job")) == 5


STRANGE = [
    "build:cuda",
    "build/cuda",
    "build",
    "3",
    "a b  c",
    "测试 🚀",
    "x" * 300,
    "build\\cuda",
    "<b>&amp;",
    "null",
]


RUNS = ["8d0c4c1e-7b1f-4a52-9d2e-0d6f2b9c41aa", 900, "900:1", "a/b", "0"]


@pytest.mark.logic
async def test_u10_u11_every_name_and_id_is_a_job_of_its_own_and_comes_back_as_it_was(bot, pull):
    dispatch = bot.dispatch(L2)
    told = [(name, name, run) for name, run in itertools.product(STRANGE, RUNS)]
    for workflow, job, run in told:
        body = suite(dispatch, status="in_progress", job=job, run_id=run)
        body["workflow"]["name"] = workflow
        assert (await post(bot, body, L2, run_id=str(run)))[0] == 200
    _, answer = await bot.get(f"/api/oot/pulls/{UPSTREAM}/{pull.number}")
    shown = [(row["workflow_name"], row["job_name"], row["run_id"]) for row in answer["jobs"]]
    assert sorted(shown) == sorted((workflow, job, str(run)) for workflow, job, run in told)
    await bot.wait(6 * 3600 + 120)
    rows = await bot.rows("oot_workflow_job")
    assert {(row["conclusion"], row["run_attempt"], row["downstream_repo"]) for row in rows} == {
        ("timed_out", 1, L2)
    }


def stories(seed, count):
    """Orders and repetitions of all that can happen to one job; the label is on at the end."""
    chance = random.Random(seed)
    for _ in range(count):
        events = ["begin", "end", "end", "begin", "sweep", "label", "unlabel"]
        chance.shuffle(events)
        yield [*events[: chance.randrange(4, 8)], "end", "label"]


OF_THE_STORY = {  # times, what they leave marked, and whose row it is
    "job_key", "dispatch_id", "delivery_id", "pr_number", "head_sha", "flags", "queue_time", "execution_time",
    "started_at", "completed_at", "received_at", "updated_at",
}  # fmt: skip


SAID = {
    "test_results": {"passed": 3, "failed": 1, "skipped": 2},
    "failed_tests": [{"name": "test_add", "line": 3, "message": "expected 1"}],
    "environment": {"driver": "24.1"},
    "artifact_url": "https://ci.example/1/artifacts",
    "check_run_id": 4711,
}


async def live(bot, github, story):
    """Let one pull request go through a story; returns its row and its check run."""
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    dispatch = bot.dispatch(L3)
    for event in story:
        if event == "label":
            await github.label(pull, "ciflow/oot/npu")
        elif event == "unlabel":
            await github.unlabel(pull, "ciflow/oot/npu")
        elif event == "sweep":
            await bot.wait(6 * 3600 + 61)
        else:
            status, said = ("completed", SAID) if event == "end" else ("in_progress", {})
            await bot.report(dispatch, status=status, conclusion="failure", **said)
        await bot.settle()
    await bot.wait(20)
    (row,) = [row for row in await bot.rows("oot_workflow_job") if row["pr_number"] == pull.number]
    assert row["head_sha"] == pull.head_sha
    (check,) = [run for run in github.check_runs(UPSTREAM, pull.head_sha) if run.name == "oot / npu"]
    shown = (check.status, check.conclusion, check.output.title.partition(" in ")[0].partition(" (")[0])
    return {name: value for name, value in row.items() if name not in OF_THE_STORY}, shown


@pytest.mark.logic
async def test_any_order_and_repetition_of_reports_sweeps_and_labels_ends_the_same(bot, github):
    expected = await live(bot, github, ["label", "begin", "end"])
    assert expected[1][:2] == ("completed", "neutral")
    for story in stories(seed=4, count=5):
        assert await live(bot, github, story) == expected, story


# Results of an L4 backend, which GitHub's own word confirms.


@pytest.mark.logic
async def test_a_green_report_of_a_run_that_failed_is_a_failure_that_says_so(bot, github, pull):
    run = await github.start_run(L4)
    await green(bot, run.id)
    await github.finish_run(run, "failure")
    await bot.settle(horizon=30)
    status, conclusion, title = bot.checks(UPSTREAM, pull.head_sha)["oot / tpu"]
    assert (status, conclusion) == ("completed", "failure")
    assert "concluded failure" in title


@pytest.mark.logic
async def test_a_run_that_nothing_of_ours_started_proves_nothing(bot, github, pull):
    run = await github.start_run(L4, event="push")
    await green(bot, run.id)
    await github.finish_run(run, "success")
    await bot.settle(horizon=30)
    status, conclusion, title = bot.checks(UPSTREAM, pull.head_sha)["oot / tpu"]
    assert (status, conclusion) == ("completed", "failure")
    assert "started by push" in title


@pytest.mark.logic
async def test_the_run_of_another_repository_proves_nothing(bot, github, pull):
    run = await github.start_run(L3)
    await github.finish_run(run, "success")
    await green(bot, run.id)
    await bot.settle(horizon=200)
    status, conclusion, title = bot.checks(UPSTREAM, pull.head_sha)["oot / tpu"]
    assert (status, conclusion) == ("completed", "failure")
    assert f"no run {run.id}" in title


@pytest.mark.logic
async def test_a_run_that_never_ends_times_out_after_the_entrys_own_patience(bot, github):
    await bot.list_backends(f"L4: {{tpu: {{repo: {L4}, job_timeout: 30m}}}}")
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    run = await github.start_run(L4)
    await green(bot, run.id)
    await bot.wait(20 * 60)
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / tpu"][:2] == ("in_progress", None)
    await bot.wait(25 * 60)
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / tpu"][:2] == ("completed", "timed_out")
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / gate"][:2] == ("completed", "failure")


@pytest.mark.logic
async def test_without_confirmation_a_minute_of_silence_ends_it(bot, github):
    await bot.list_backends(f"L4: {{tpu: {{repo: {L4}, confirm: false}}}}")
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    await green(bot, "build-7f3a")
    await bot.settle()
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / gate"][:2] == ("in_progress", None)
    await bot.wait(130)
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / gate"][:2] == ("completed", "success")
    assert not [call for call in github.calls if f"{L4}/actions/runs/" in call.path]


@pytest.mark.logic
async def test_a_run_that_a_dispatch_started_itself_is_the_only_one_that_may_report_on_it(bot, github):
    await bot.list_backends(f"L2: [{{repo: {L2}, dispatch: workflow, workflow_file: ci.yml}}]")
    await github.open_pull(UPSTREAM)
    await bot.settle()
    sent = bot.dispatch(L2)
    dispatch = SimpleNamespace(
        repo=sent.repo, client_payload=json.loads(sent.client_payload["client_payload"])
    )
    (started,) = [row["run_id"] for row in await bot.rows("oot_dispatch") if row["run_id"]]
    status, answer = await bot.report(dispatch, run_id="123456789")
    assert (status, answer["error"]) == (403, "forbidden")
    assert started in answer["detail"]
    assert (await bot.report(dispatch, run_id=started))[0] == 200


# Results of runs that nobody dispatched: nightly ones, for a commit that GitHub must know.


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
