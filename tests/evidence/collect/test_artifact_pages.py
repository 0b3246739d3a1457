"""The pages and JSON of jobs, runs and artifacts; and that nothing of a private repository is shown."""

from __future__ import annotations

import pytest

from bot.demo.github.payloads import workflow_job
from tests.harness import UPSTREAM
from tests.serving import SQLITE

pytestmark = SQLITE
ADMIN = {"Authorization": "Bearer an admin token of ours"}


async def failed_run(
    github, *, repo=UPSTREAM, size=1000, event="push", sha=None, name="linux / test (default, 1, 2)"
):
    run = await github.start_run(repo, event=event, head_sha=sha)
    job = await github.start_job(run, name)
    made = github.add_artifact(run, "wheels", bytes(size))
    report = github.add_artifact(run, f"test-reports_{job.id}", {"a.xml": b"<a/>"})
    await github.finish_job(job, "failure")
    await github.finish_run(run, "failure")
    return run, job, made, report


async def deliver(bot, github, repo=UPSTREAM):
    """GitHub says that a repository is public or private, and what its default branch is."""
    from bot.demo.github.serializers.repository import repository

    shown = repository(github.state, github.state.repo(repo))
    await bot.send("repository", {"action": "edited", "repository": shown})
    await bot.settle()


async def test_a_jobs_page_and_json(bot, github):
    run, job, _, report = await failed_run(github)
    await bot.settle(horizon=15)
    status, page = await bot.get(f"/{UPSTREAM}/job/{job.id}")
    assert status == 200
    for words in (
        "linux / test (default, 1, 2)",
        "failure",
        "GitHub Actions 6",
        "Run tests",
        "stored",
        f"/{UPSTREAM}/run/{run.id}",
    ):
        assert words in page, words
    assert f"/actions/runs/{run.id}/artifacts/{report.id}" in page
    status, answer = await bot.get(f"/api/ci/jobs/{UPSTREAM}/{job.id}")
    assert (status, answer["job"]["conclusion"], answer["log"]["state"]) == (200, "failure", "stored")
    assert [one["id"] for one in answer["artifacts"]] == [report.id]
    assert answer["verdicts"] == []


async def test_a_log_that_is_not_there_is_explained(bot, github):
    github.faults.add(path="/logs$", status=410)
    _, job, *_ = await failed_run(github)
    await bot.settle(horizon=15)
    _, page = await bot.get(f"/{UPSTREAM}/job/{job.id}")
    assert "not available: GitHub has deleted it" in page
    run = await github.start_run(UPSTREAM)
    passed = await github.start_job(run, "fine")
    await github.finish_job(passed, "success")
    await bot.settle(horizon=15)
    _, page = await bot.get(f"/{UPSTREAM}/job/{passed.id}")
    assert "not available: CI_LOGS=failed" in page


async def test_a_runs_page_lists_jobs_and_artifacts(bot, github):
    run, job, made, _ = await failed_run(github, size=2_500_000)
    await bot.settle(horizon=15)
    status, page = await bot.get(f"/{UPSTREAM}/run/{run.id}")
    assert status == 200
    assert f'href="/{UPSTREAM}/job/{job.id}"' in page
    assert "Artifacts (2.5 MB)" in page
    assert "wheels · 2.5 MB · until 20" in page
    assert f"/actions/runs/{run.id}/artifacts/{made.id}" in page


async def test_a_pull_request_and_a_commit_show_their_artifacts(bot, github):
    pull = await github.open_pull(UPSTREAM)
    await failed_run(github, sha=pull.head_sha, event="pull_request")
    await bot.settle(horizon=15)
    _, page = await bot.get(f"/{UPSTREAM}/pull/{pull.number}")
    assert "<h2>Artifacts (" in page
    run, *_ = await failed_run(github)
    await bot.settle(horizon=15)
    status, page = await bot.get(f"/{UPSTREAM}/commit/{run.head_sha}")
    assert (status, "<h2>Artifacts (" in page) == (200, True)


async def test_growth_against_the_base(bot, github):
    await deliver(bot, github)
    await failed_run(github, size=1_000_000)
    await bot.settle(horizon=15)
    pull = await github.open_pull(UPSTREAM)
    run, *_ = await failed_run(github, size=1_120_000, sha=pull.head_sha, event="pull_request")
    await bot.settle(horizon=15)
    _, page = await bot.get(f"/{UPSTREAM}/run/{run.id}")
    assert "grew 12 % against the base" in page


async def test_the_index_can_be_searched_and_paged(bot, github):
    run, _, made, report = await failed_run(github)
    other, *_ = await failed_run(github)
    await bot.settle(horizon=15)
    base = f"/api/ci/artifacts/{UPSTREAM}"

    async def ids(query):
        status, answer = await bot.get(f"{base}?{query}")
        assert status == 200, answer
        return [one["id"] for one in answer["artifacts"]]

    assert await ids(f"run_id={run.id}") == [report.id, made.id]
    assert len(await ids(f"sha={run.head_sha[:9]}")) == 4
    assert len(await ids("name=wheels")) == 2
    assert len(await ids("kind=junit")) == 2
    _, first = await bot.get(f"{base}?limit=3")
    _, second = await bot.get(f"{base}?limit=3&before={first['next']}")
    assert (len(first["artifacts"]), len(second["artifacts"]), second["next"]) == (3, 1, None)
    one = next(one for one in second["artifacts"] + first["artifacts"] if one["id"] == made.id)
    assert one["state"] == "skipped"
    assert one["reason"].startswith("indexed only")
    assert one["digest"] == made.digest
    assert other.id in {one["run_id"] for one in first["artifacts"]}
    for query in ("kind=unknown", "run_id=x", "limit=0", "before=%00", "sha=xyz"):
        assert (await bot.get(f"{base}?{query}"))[0] == 400, query


async def test_storage_by_day_and_workflow(bot, github, clock):
    await failed_run(github, size=1000)
    await bot.settle(horizon=15)
    _, answer = await bot.get(f"/api/ci/storage/{UPSTREAM}")
    (row,) = answer["storage"]
    assert (row["workflow"], row["artifacts"], row["bytes"] > 1000) == ("CI", 2, True)
    status, page = await bot.get(f"/{UPSTREAM}/storage")
    assert status == 200
    assert f"2 artifacts of {UPSTREAM}, " in page
    assert "<bdi>CI</bdi>" in page
    assert "100 %" in page
    run = (await bot.rows("ci_artifact"))[0]["run_id"]
    assert f'href="/{UPSTREAM}/storage"' in (await bot.get(f"/{UPSTREAM}/run/{run}"))[1]


async def test_nothing_of_a_private_repository_is_shown(bot, github):
    secret = github.add_repo("org/secret-backend", private=True)
    allowlist = bot.context.settings.data_dir / "allowlist.yml"
    allowlist.write_text(allowlist.read_text().replace("L2: [", f"L2: [{secret.full_name}, "))
    await bot.wait(60)
    run, job, *_ = await failed_run(github, repo=secret.full_name)
    await deliver(bot, github, secret.full_name)
    await bot.settle(horizon=15)
    assert {row["state"] for row in await bot.rows("ci_fetch")} == {"stored", "parsed"}
    for path in (
        f"/{secret.full_name}/job/{job.id}",
        f"/{secret.full_name}/run/{run.id}",
        f"/api/ci/jobs/{secret.full_name}/{job.id}",
        f"/api/ci/artifacts/{secret.full_name}",
        f"/api/ci/storage/{secret.full_name}",
        f"/{secret.full_name}/storage",
    ):
        assert (await bot.get(path))[0] == 404, path
        assert (await bot.get(path, headers=ADMIN))[0] == 200, path
        unknown = path.replace("secret-backend", "unknown-backend")
        assert (await bot.get(unknown))[0] == 404
    assert (await bot.get(f"/{UPSTREAM}/job/{job.id}"))[0] == 404


def queued(github):
    repo = github.state.repo(UPSTREAM)
    return github.queued_run(repo, workflow=github.state.workflow(repo, "CI"), event="push", actor="octocat")


async def test_a_run_of_which_only_jobs_are_known_shows_them(bot, github):
    run = queued(github)
    for number, conclusion in ((1, "failure"), (2, "success")):
        run.run_attempt = number
        job = github.past_job(run, "linux / test", (), conclusion=conclusion, times=(1, 2, 3))
        await github.emit(workflow_job(github.state, job, "completed"))
    await deliver(bot, github)
    status, page = await bot.get(f"/{UPSTREAM}/run/{run.id}")
    assert status == 200
    for words in (
        "Only its jobs are known",
        "Attempt 2",
        "Attempt 1",
        "failure",
        f"/actions/runs/{run.id}",
        f"/commit/{run.head_sha}",
    ):
        assert words in page, words


@pytest.mark.parametrize("path", ["job/0", "job/99999999999999999999", "run/1", "job/x", "run/-1"])
async def test_what_is_unknown_is_not_found(bot, path):
    assert (await bot.get(f"/{UPSTREAM}/{path}"))[0] == 404


async def test_hostile_names_are_escaped(bot, github):
    _, job, *_ = await failed_run(github, name="<script>alert(1)</script> \u202e / test (a)")
    await bot.settle(horizon=15)
    _, page = await bot.get(f"/{UPSTREAM}/job/{job.id}")
    assert "<script>" not in page
    assert "\u202e" not in page
