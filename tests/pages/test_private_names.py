"""What a private backend calls its jobs, workflows, tests and artifacts shows on no public page, JSON, comment or check."""

import re

import pytest

from tests.evidence.collect.test_uploads import send
from tests.harness import L2, L3, L4, UPSTREAM
from tests.serving import SQLITE

pytestmark = SQLITE

MARK = "zebrafish"
ADMIN = {"Authorization": "Bearer an admin token of ours"}
ALLOWLIST = f"""
L2: [{{repo: {L2}, events: [pull_request, push]}}]
L3: {{npu: {{repo: {L3}, checks: jobs, events: [pull_request, push]}}}}
L4: [{{repo: {L4}, device: tpu, checks: jobs, events: [pull_request, push]}}]
"""
JUNIT = f"""<testsuite name="{MARK} suite" tests="1" failures="1">
<testcase classname="{MARK}.T" name="test_{MARK}" file="{MARK}.py"><failure message="{MARK}">{MARK}</failure></testcase>
</testsuite>"""
REPORTED = {
    "name": f"{MARK} workflow",
    "test_results": {"passed": 1, "failed": 1, "skipped": 0},
    "failed_tests": [
        {"name": f"test_{MARK}", "classname": MARK, "file": f"{MARK}.py", "message": MARK, "stacktrace": MARK}
    ],
    "artifact_url": f"https://files.example/{MARK}.zip",
    "environment": {MARK: MARK},
}


@pytest.fixture
async def bot(collecting_bot):
    await collecting_bot.list_backends(ALLOWLIST)
    return collecting_bot


async def said_to_be(bot, github, repo, *, private, year=2030):
    github.state.repo(repo).private = private
    about = {"id": github.state.repo(repo).id, "full_name": repo, "private": private}
    action = "privatized" if private else "publicized"
    body = {"action": action, "repository": about | {"updated_at": f"{year}-01-01T00:00:00Z"}}
    await bot.send("repository", body)
    await bot.settle()


async def fails(bot, github, dispatch, *, job, commit):
    """A backend's run fails, with a log, a report of tests and an artifact, all of whose names are marked."""
    repo = dispatch.repo.full_name
    run = await github.start_run(repo, event="repository_dispatch", name=f"{MARK} workflow", head_sha=commit)
    started = await github.start_job(run, job)
    github.add_artifact(run, f"test-reports-{MARK}", {f"{MARK}.xml": JUNIT.encode()})
    github.add_artifact(run, f"wheels-{MARK}", b"x" * 100)
    await bot.report(dispatch, status="in_progress", job=job, run_id=str(run.id), name=f"{MARK} workflow")
    await bot.report(dispatch, conclusion="failure", job=job, run_id=str(run.id), **REPORTED)
    await github.finish_job(started, "failure", log=f"{MARK}.cc:1:1: error: {MARK}\nFAILED {MARK}.py::test\n")
    await github.finish_run(run, "failure")
    await send(
        bot, dispatch, f"FAILED {MARK}.py::test_x - {MARK}\n".encode(), repo=repo, job=f"{MARK} upload"
    )
    await bot.wait(120)
    return run, started


async def public_texts(bot, first):
    """Every text that these pages and all they link to answer with, by address."""
    waiting, found = list(first), {}
    while waiting and len(found) < 400:
        path = waiting.pop(0).partition("#")[0]
        if path in found:
            continue
        async with bot.http.get(bot.url + path, allow_redirects=False) as answer:
            found[path] = f"{answer.headers} {await answer.text()}"
        links = re.findall(r'(?:href|data-url)="(/[^"]+)"', found[path]) + re.findall(
            r'"(?:page_url|next)": ?"(/[^"]+)"', found[path]
        )
        waiting += [one.replace("&amp;", "&") for one in links if not one.startswith("/static/")]
    return found


def places(backend, run, job, pull, commit):
    owner = f"{UPSTREAM}/{pull.number}"
    return [
        f"/oot/{backend}", f"/oot/{backend}?columns=all&tab=trunk", f"/api/oot/backends/{backend}",
        f"/api/oot/backends/{backend}/jobs.csv", f"/{UPSTREAM}/pull/{pull.number}", f"/api/oot/pulls/{owner}",
        f"/{UPSTREAM}/commit/{pull.head_sha}", f"/{UPSTREAM}/commit/{commit}", f"/api/oot/commits/{UPSTREAM}/{commit}",
        f"/api/oot/commits/{UPSTREAM}/{pull.head_sha}", f"/{UPSTREAM}/commit/{pull.head_sha}/tests",
        f"/{UPSTREAM}/commit/{pull.head_sha}/logs?q={MARK[:3]}", f"/api/ci/logs/{UPSTREAM}/commit/{pull.head_sha}?q=error",
        f"/{backend}/run/{run.id}", f"/{backend}/job/{job.id}", f"/{backend}/job/{job.id}/log",
        f"/{backend}/run/{run.id}/tests", f"/api/ci/artifacts/{backend}", f"/api/ci/{backend}/jobs/{job.id}",
        f"/oot/{backend}/tests", f"/{backend}/tests", f"/{backend}/tests/lost", f"/{backend}/utilization",
        f"/api/ci/tests/{UPSTREAM}/commits/{pull.head_sha}", f"/api/records/workflow_job/{backend}",
        f"/api/records/workflow_run/{backend}", f"/api/records/check_run/{UPSTREAM}",
        f"/hud/{UPSTREAM}/main", f"/api/ci/hud/{UPSTREAM}/main", "/api/ci/failures", "/failures", "/oot", "/metrics",
        "/api/oot/summary", "/oot/metrics", "/oot/levels", "/readyz",
    ]  # fmt: skip


@pytest.mark.parametrize("backend", [L4, L3, L2])
async def test_no_name_of_a_private_backend_shows(bot, github, backend):
    for repo in (UPSTREAM, L2, L3, L4):
        await said_to_be(bot, github, repo, private=repo == backend)
    labels = ["ciflow/oot/npu"] if backend == L3 else []
    commit = await github.push(UPSTREAM, "main", message="a change")
    await bot.settle()
    job_name = f"{MARK} job"
    await fails(bot, github, bot.dispatch(backend), job=job_name, commit=None)
    pull = await github.open_pull(UPSTREAM, labels=labels)
    await bot.settle()
    run, job = await fails(bot, github, bot.dispatch(backend), job=job_name, commit=None)
    await bot.wait(300)
    comments = [one.body for one in github.comments(pull)]
    checks = [(one.name, vars(one.output)) for one in github.check_runs_all(UPSTREAM, pull.head_sha)]
    assert comments
    assert [one for one in comments if MARK in one.lower()] == []
    assert [one for one in checks if MARK in str(one).lower()] == []
    found = await public_texts(bot, places(backend, run, job, pull, commit))
    assert (
        sorted(path for path, text in found.items() if MARK in text.lower().replace(path.lower(), "")) == []
    )
    assert len(found) > 40
    assert (await bot.get(f"/api/oot/commits/{UPSTREAM}/{commit}"))[1]["jobs"]
    _, seen = await bot.get(f"/api/oot/pulls/{UPSTREAM}/{pull.number}", headers=ADMIN)
    assert [one["job_name"] for one in seen["jobs"]] == [job_name]


async def test_what_is_shown_instead_stays_the_same_and_keeps_the_counts(bot, github):
    await said_to_be(bot, github, L4, private=True)
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    await fails(bot, github, bot.dispatch(L4), job=f"{MARK} job", commit=None)
    _, answer = await bot.get(f"/api/oot/pulls/{UPSTREAM}/{pull.number}")
    (job,) = answer["jobs"]
    assert re.fullmatch(r"job [0-9a-f]{6}", job["job_name"])
    assert re.fullmatch(r"workflow [0-9a-f]{6}", job["workflow_name"])
    assert (job["conclusion"], job["failed_tests"], job["failed_tests_json"]) == ("failure", 1, None)
    name = f"oot / tpu / {job['workflow_name']} / {job['job_name']}"
    assert bot.checks(UPSTREAM, pull.head_sha)[name][:2] == ("completed", "failure")
    _, page = await bot.get(f"/oot/{L4}")
    assert job["job_name"] in page
    assert "its repository is private" in page
