"""Logs on pull requests, of backends on another CI too; a job's address explained; a bucket that does not answer."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest
import sqlalchemy as sa

from bot.evidence.collect import remote_blobs
from bot.ingest.tables import records
from bot.jobs.settings import CollectSettings
from tests import harness
from tests.command import ootbot
from tests.evidence.collect import bucket
from tests.evidence.collect.test_uploads import send
from tests.evidence.logs.jobs import Logs
from tests.harness import L4, UPSTREAM
from tests.pages.page_checks import failures
from tests.serving import SQLITE

pytestmark = SQLITE

LOG = "+ make\na.cc:3:1: error: @octocat|`all`](https://evil.example) unknown\n"
ADMIN = {"Authorization": "Bearer an admin token of ours"}
UPLOADED = b"+ pytest\nFAILED t.py::test_x - boom\n"


@pytest.fixture
async def pull(bot, github):
    made = await github.open_pull(UPSTREAM, author="octocat")
    await bot.settle()
    return made


async def fails(bot, github, *, name="build", log=LOG):
    """A backend's job reports its failure and ends at GitHub, log included; returns it."""
    run = await github.start_run(L4, event="repository_dispatch", name="CI")
    job = await github.start_job(run, name)
    await bot.report(bot.dispatch(L4), conclusion="failure", run_id=str(run.id))
    await github.finish_job(job, "failure", log=log)
    await github.finish_run(run, "failure")
    return job


def comment(github, pull):
    (one,) = [comment for comment in github.comments(pull) if comment.app is not None]
    return one.body


def check(github, pull):
    (one,) = [run for run in github.check_runs(UPSTREAM, pull.head_sha) if run.name == "oot / tpu"]
    return one.output


async def test_the_line_is_in_comment_and_check_run_within_a_minute(bot, github, pull):
    job = await fails(bot, github)
    await bot.wait(60)
    place = f"[line 2]({bot.context.settings.url}/{L4}/job/{job.id}/log?line=2#L2)"
    for text in (comment(github, pull), check(github, pull).summary, check(github, pull).text):
        (line,) = [one for one in text.splitlines() if place in one]
        assert line.startswith("build · ")
        assert "a.cc:3:1:" in line
        assert "@octocat" not in line
        assert "](https://evil.example" not in line


async def test_once_a_re_run_has_passed_pages_no_longer_say_why_the_job_failed(bot, github, pull):
    job = await fails(bot, github)
    await bot.wait(60)
    places = (f"/{UPSTREAM}/pull/{pull.number}", f"/{UPSTREAM}/commit/{pull.head_sha}")
    for place in places:
        assert "Nothing has failed" not in (await bot.get(place))[1]
    github.begin_attempt(job.run)
    again = await github.start_job(job.run, "build")
    await bot.report(bot.dispatch(L4), conclusion="success", run_id=str(job.run.id), attempt=2)
    await github.finish_job(again, "success", log="fine\n")
    await github.finish_run(job.run, "success")
    await bot.wait(60)
    for place in places:
        assert "Nothing has failed" in (await bot.get(place))[1]
    own = await github.start_run(UPSTREAM, event="pull_request", name="lint", head_sha=pull.head_sha)
    await github.finish_job(await github.start_job(own, "lint"), "failure", log=LOG)
    await github.finish_run(own, "failure")
    await bot.wait(60)
    assert "Nothing has failed" not in (await bot.get(places[0]))[1]
    github.begin_attempt(own)
    await github.finish_job(await github.start_job(own, "lint"), "success", log="fine\n")
    await github.finish_run(own, "success")
    await bot.wait(60)
    assert "Nothing has failed" in (await bot.get(places[0]))[1]


async def test_a_backend_dispatched_again_is_no_longer_said_to_fail(bot, github, pull):
    await fails(bot, github)
    await bot.wait(60)
    bot.clock.advance(5)
    await github.comment(pull, "/oot run tpu", by="alice")
    await bot.wait(30)
    await bot.report(bot.dispatch(L4), conclusion="success", run_id="901")
    await bot.wait(60)
    assert "Nothing has failed" in (await bot.get(f"/{UPSTREAM}/pull/{pull.number}"))[1]


async def test_the_step_is_named_where_the_lines_have_times(bot, github, pull):
    at = datetime.fromtimestamp(bot.clock.now() / 1000, UTC)
    await fails(bot, github, log=f"{at:%Y-%m-%dT%H:%M:%S}.0000000Z a.cc:3:1: error: x\n")
    await bot.wait(60)
    assert "[line 1 · in Run tests](" in comment(github, pull)
    assert "line 1 · in Run tests" in (await bot.get(f"/{UPSTREAM}/pull/{pull.number}"))[1]


async def test_a_job_of_another_name_stands_under_its_backend(bot, github, pull):
    await fails(bot, github, name="build / inner", log="x" * 5000 + " FAILED\n##[error]" + "y" * 5000 + "\n")
    await bot.wait(60)
    (line,) = [one for one in comment(github, pull).splitlines() if "line 2]" in one]
    assert line.startswith("- **`build / inner`** · generic · ")
    assert 250 < line.count("y") <= 300


async def test_of_a_private_backend_it_says_only_that_the_log_is_private(bot, github, pull):
    job = await fails(bot, github, name="build / inner")
    await bot.wait(60)
    assert "a.cc:3:1" in comment(github, pull)
    assert "build / inner" in comment(github, pull)
    about = {"id": job.run.repo.id, "full_name": L4, "private": True, "updated_at": "2030-01-01T00:00:00Z"}
    await bot.send("repository", {"action": "privatized", "repository": about})
    await bot.wait(60)
    async with bot.store.read() as tx:
        same = records["repository"].c.repository_id == about["id"]
        assert (await tx.run(sa.select(records["repository"].c.private).where(same))).scalar() is True
    for text in (comment(github, pull), check(github, pull).summary, check(github, pull).text):
        assert "the log is private" in text
        assert "a.cc:3:1" not in text
        assert "inner" not in text
    for path in (f"/{UPSTREAM}/pull/{pull.number}", f"/{UPSTREAM}/commit/{pull.head_sha}"):
        assert "inner" not in (await bot.get(path))[1]


async def test_the_kind_of_a_failure_stands_beside_the_pass_rate(bot, github, pull):
    dispatch, runs = bot.dispatch(L4), []
    logs = {"build": "##[error]The runner has received a shutdown signal.\n", "test": "FAILED t.py::test_x\n"}
    for name, log in logs.items():
        run = await github.start_run(L4, event="repository_dispatch", name="CI")
        job = await github.start_job(run, name)
        if name == "test":  # in any order
            await bot.report(dispatch, conclusion="failure", run_id=str(run.id), job=name)
        await github.finish_job(job, "failure", log=log)
        await bot.wait(60)
        runs.append(run)
    await bot.report(dispatch, conclusion="failure", run_id=str(runs[0].id), job="build")
    await bot.report(dispatch, conclusion="success", run_id="900", job="lint")
    await bot.wait(60)
    (backend,) = [one for one in (await bot.get("/api/oot/summary"))[1]["backends"] if one["repo"] == L4]
    assert (backend["failure"], backend["infra"]) == (2, 1)
    assert (round(backend["pass_rate"], 3), backend["pass_rate_without_infra"]) == (0.333, 0.5)
    assert "without 1 infrastructure failure<" in (await bot.get(f"/oot/{L4}"))[1]


async def test_jobs_of_upstream_make_no_comment(bot, github, pull, logs):
    run = await github.start_run(UPSTREAM, event="pull_request", head_sha=pull.head_sha)
    job = await github.start_job(run, "lint")
    await github.finish_job(job, "failure", log=LOG)
    await bot.wait(60)
    assert len(await bot.rows("ci_verdict")) == 1
    assert [one for one in github.comments(pull) if one.app is not None] == []


async def test_pages_say_no_more_why_a_job_failed_that_has_passed_since(bot, github, pull):
    job = await fails(bot, github)
    await bot.wait(60)
    pages = [f"/{UPSTREAM}/pull/{pull.number}", f"/{UPSTREAM}/commit/{pull.head_sha}"]
    for page in pages:
        assert "Nothing has failed" not in (await bot.get(page))[1]
    github.begin_attempt(job.run)
    again = await github.start_job(job.run, "build")
    await bot.report(bot.dispatch(L4), conclusion="success", run_id=str(job.run.id), attempt=2)
    await github.finish_job(again, "success", log="fine\n")
    await github.finish_run(job.run, "success")
    await bot.wait(60)
    for page in pages:
        assert "a.cc:3:1" not in (await bot.get(page))[1], page


@pytest.fixture
async def pull_of_backend(bot, github):
    """A pull request; GitHub has said that the backend is public."""
    about = {
        "id": github.state.repo(L4).id,
        "full_name": L4,
        "private": False,
        "updated_at": "2026-01-01T00:00:00Z",
    }
    await bot.send("repository", {"action": "publicized", "repository": about})
    made = await github.open_pull(UPSTREAM)
    await bot.settle()
    return made


async def arrives(bot, log=UPLOADED, *, conclusion="failure", job="build"):
    """A log is uploaded, then its job is reported; returns the pages that show it."""
    dispatch = bot.dispatch(L4)
    status, answer = await send(bot, dispatch, log, repo=L4, job=job)
    assert status == 202
    await bot.report(dispatch, conclusion=conclusion)
    await bot.wait(60)
    return f"/{L4}/upload/{answer['upload']}"


async def test_it_is_in_comment_and_check_run_and_on_the_pages_of_the_pull_request(
    bot, github, pull_of_backend
):
    page = await arrives(bot)
    (comment,) = [one for one in github.comments(pull_of_backend) if one.app is not None]
    (line,) = [one for one in comment.body.splitlines() if "FAILED t.py" in one]
    assert line.startswith("test · ")  # below the reported job of that name
    assert f"[line 2]({bot.context.settings.url}{page}/log?line=2#L2)" in line
    for place in (
        f"/{UPSTREAM}/pull/{pull_of_backend.number}",
        f"/{UPSTREAM}/commit/{pull_of_backend.head_sha}",
    ):
        _, shown = await bot.get(place)
        (row,) = failures(shown)
        assert row[0] == "CI / build failed test: FAILED t.py::test_x - boom · line 2"
        assert f'href="{page}"' in shown
    _, shown = await bot.get(page)
    assert "Why it failed" in shown
    assert f'href="/{UPSTREAM}/pull/{pull_of_backend.number}"' in shown
    _, shown = await bot.get(f"{page}/log")
    assert '<tr id="L2" class="marked">' in shown
    status, text = await bot.get(f"{page}/log.txt")
    assert (status, text) == (200, UPLOADED.decode())
    _, found = await bot.get(f"/api/ci/logs/{UPSTREAM}/commit/{pull_of_backend.head_sha}?q=boom")
    assert [(one["repo"], len(one["hits"])) for one in found["jobs"]] == [(L4, 1)]
    (signature,) = (await bot.get("/api/ci/failures"))[1]["failures"]
    assert (signature["jobs"], signature["prs"]) == (1, 1)
    _, answer = await bot.get(f"/api/ci/failures/{signature['signature']}")
    assert answer["samples"][0]["repo"] == L4


async def test_the_log_of_a_job_that_passed_is_kept_and_not_classified(bot, pull_of_backend):
    page = await arrives(bot, conclusion="success")
    assert await bot.rows("ci_verdict") == []
    assert (await bot.get(f"{page}/log"))[0] == 200


async def test_a_log_of_a_job_that_is_never_reported_is_kept_after_a_day(bot, pull_of_backend):
    _, answer = await send(bot, bot.dispatch(L4), UPLOADED, repo=L4)
    page = f"/{L4}/upload/{answer['upload']}"
    await bot.wait(60)
    assert (await bot.get(f"{page}/log"))[0] == 404
    bot.clock.advance(25 * 3600)
    await bot.settle()
    assert (await bot.get(f"{page}/log"))[0] == 200
    assert await bot.rows("ci_verdict") == []


async def test_of_a_private_backend_nothing_is_shown(bot, github, pull_of_backend):
    page = await arrives(bot)
    about = {
        "id": github.state.repo(L4).id,
        "full_name": L4,
        "private": True,
        "updated_at": "2030-01-01T00:00:00Z",
    }
    await bot.send("repository", {"action": "privatized", "repository": about})
    await bot.wait(60)
    for path in (page, f"{page}/log", f"{page}/log.txt"):
        assert (await bot.get(path))[0] == 404
        assert (await bot.get(path, headers=ADMIN))[0] == 200
    assert "boom" not in (await bot.get(f"/{UPSTREAM}/pull/{pull_of_backend.number}"))[1]
    (comment,) = [one for one in github.comments(pull_of_backend) if one.app is not None]
    assert "the log is private" in comment.body
    assert (await bot.get("/api/ci/failures"))[1]["failures"] == []


async def test_a_public_backends_log_shows_nothing_of_a_private_upstream(bot, github, pull_of_backend):
    page = await arrives(bot)
    assert f"{UPSTREAM}#{pull_of_backend.number}" in (await bot.get(page))[1]
    about = {"id": github.state.repo(UPSTREAM).id, "full_name": UPSTREAM, "private": True}
    await bot.send(
        "repository", {"action": "privatized", "repository": about | {"updated_at": "2030-01-01T00:00:00Z"}}
    )
    await bot.wait(60)
    status, shown = await bot.get(page)
    assert (status, "Why it failed" in shown) == (200, True)
    for secret in (f"{UPSTREAM}#", pull_of_backend.head_sha[:12]):
        assert secret not in shown
    assert f"{UPSTREAM}#{pull_of_backend.number}" in (await bot.get(page, headers=ADMIN))[1]


async def test_the_log_of_a_job_is_explained(bot, github, logs):
    stored = await logs.arrives("FAILED t.py::test_stored\n")
    passed = await logs.arrives("FAILED t.py::test_elsewhere\n", conclusion="success")
    asked = len([call for call in github.calls if call.path.endswith("/logs")])
    for address in (
        f"https://github.com/{UPSTREAM}/actions/runs/{stored.run.id}/job/{stored.id}?pr=1",
        f"http://127.0.0.1:8080/{UPSTREAM}/job/{stored.id}",
    ):
        code, out, err = await ootbot(bot, "logs", "explain", address, "--json")
        assert code == 0, err
        assert json.loads(out)["verdicts"][0]["captures"] == ["t.py::test_stored"]
    assert len([call for call in github.calls if call.path.endswith("/logs")]) == asked
    address = f"https://github.com/{UPSTREAM}/actions/runs/{passed.run.id}/job/{passed.id}"
    code, out, err = await ootbot(bot, "logs", "explain", address)
    assert code == 0, err
    assert "verdict: pytest failure (test), line 1" in out


async def test_addresses_that_name_no_log(bot):
    code, _, err = await ootbot(bot, "logs", "explain", "https://github.com/org/x/pull/1")
    assert (code, "not the address of a job" in err) == (2, True)
    code, _, err = await ootbot(
        bot, "logs", "explain", f"https://github.com/{UPSTREAM}/actions/runs/1/job/4711"
    )
    assert (code, "404" in err, "Traceback" in err) == (1, True, False)


@pytest.fixture
def away(monkeypatch):
    """A bucket with what was collected; leaving the context takes its server away."""
    monkeypatch.setattr(remote_blobs, "REPEATED", 0)
    serving = bucket.serving()
    for name, value in serving.__enter__().items():
        monkeypatch.setenv(name, value)
    yield serving
    serving.__exit__(None, None, None)


async def test_the_log_is_answered_503_with_the_reason_and_the_verdict_is_shown(
    settings, github, issuer, clock, away
):
    options = CollectSettings(blobs=f"s3://{bucket.NAME}/x")
    chosen = replace(settings, of_features={CollectSettings: options})
    async with harness.running(chosen, github=github, issuer=issuer, app=github.app, clock=clock) as bot:
        job = await Logs(bot, github).arrives("FAILED t.py::test_x\n")
        page = f"/{UPSTREAM}/job/{job.id}"
        assert (await bot.get(f"{page}/log"))[0] == 200
        away.__exit__(None, None, None)
        bot.clock.advance(60)
        for path in (f"{page}/log", f"{page}/log.txt", f"/api/ci/logs/{UPSTREAM}/{job.id}",
                     f"/{UPSTREAM}/commit/{job.run.head_sha}/logs?q=x"):  # fmt: skip
            status, said = await bot.get(path, headers={"Accept": "text/html"})
            assert (status, "the store that keeps them does not answer" in str(said)) == (503, True), path
            assert bucket.NAME not in str(said)  # where logs are stored is not shown
        assert "FAILED t.py::test_x" in (await bot.get(page))[1]
        await github.open_pull(UPSTREAM)
        await bot.settle()
        assert len(await bot.rows("oot_dispatch")) == 4
