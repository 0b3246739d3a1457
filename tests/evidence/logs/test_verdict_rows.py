"""From the end of a job to its verdict, and what changes it: new rules, and what GitHub notes beside the job."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from bot.demo.github.models import Output
from bot.evidence.collect.blobs import BLOBS
from bot.evidence.logs import failure_costs, reclassify, store_log
from bot.evidence.logs.feature import LogsSettings
from tests.evidence.logs.jobs import Logs
from tests.harness import L3, L4, UPSTREAM, running
from tests.jobs.branch import push
from tests.pages.page_checks import page_text

DAY = 86_400_000
RULE = "[[rule]]\nname = 'own'\npattern = '{}'\nkind = 'infra'\n"
CANCELED = "2026-11-22T10:00:00.1234567Z ##[error]The operation was canceled.\n"
OVER = "The job has exceeded the maximum execution time of 6h0m0s"
LOST = "The self-hosted runner: npu-7 lost communication with the server. Verify the machine is running."
LEFT = {"path": ".github", "start_line": 1, "end_line": 1, "annotation_level": "failure"}


def line(bot, text):
    """A line of a log, written now."""
    at = datetime.fromtimestamp(bot.clock.now() / 1000, UTC)
    return f"{at:%Y-%m-%dT%H:%M:%S}.1234567Z {text}\n"


@pytest.mark.logic
async def test_a_failed_job_gets_its_verdict_with_step_and_signature(bot, logs):
    job = await logs.arrives(line(bot, "+ pytest") + line(bot, "FAILED tests/test_a.py::test_b - boom"))
    (found,) = await logs.verdicts(job)
    assert (found["rule"], found["kind"]) == ("pytest failure", "test")
    assert (found["captures"], found["context"]) == (["tests/test_a.py::test_b"], ["+ pytest"])
    (log,) = await bot.rows("ci_log")
    assert (log["lines"], log["blob"]) == (2, f"log/{job.run.repo.id}/{job.id}")
    (signature,) = await bot.rows("ci_signature")
    assert signature["title"] == "pytest failure: tests/test_a.py::test_b"


@pytest.mark.logic
async def test_three_states_are_told_apart(bot, github, logs):
    nothing = await logs.arrives("all is well\n")
    github.faults.add(path="/logs$", status=410)
    absent = await logs.arrives("##[error]gone\n")
    assert [(v["rule"], v["kind"]) for v in await logs.verdicts(nothing)] == [(None, "none")]
    assert await logs.verdicts(absent) == []
    assert len(await bot.rows("ci_log")) == 1
    assert await bot.rows("ci_signature") == []


@pytest.mark.logic
async def test_failures_are_counted_by_signature_and_day_each_once(bot, github, logs):
    for branch in ("a", "a", "b"):
        job = await logs.arrives("FAILED t.py::test_x - in 1 s\n", branch=branch)
        await logs.again(job)
    await logs.arrives("FAILED t.py::test_x - in 2 s\n", repo=L3, trusted=True)
    days = await bot.rows("ci_signature_day")
    counts = {d["family"]: (d["jobs"], d["prs"], d["trusted_jobs"], d["repos"]) for d in days}
    assert counts == {"public": (4, 2, 1, 2)}
    assert [s["jobs_total"] for s in await bot.rows("ci_signature")] == [4]


async def test_another_verdict_moves_the_count_and_the_former_one_stays_until_its_log_goes(bot, logs):
    job = await logs.arrives("FAILED t.py::test_x\n##[error]y\n")
    async with bot.store.transaction() as tx:
        rule = "[[rule]]\nname = 'new'\npattern = 'y$'\n"
        await store_log.store_version(tx, store_log.own_source(UPSTREAM), rule, error=None, count=1)
    await logs.again(job)
    assert (await logs.verdicts(job))[0]["rule"] == "new"
    assert {s["rule"] for s in await bot.rows("ci_signature")} == {"new"}
    assert len({v["ruleset"] for v in await bot.rows("ci_verdict")}) == 2
    bot.clock.at += 31 * DAY
    await failure_costs.prune_logs(bot.context)
    assert {v["current"] for v in await bot.rows("ci_verdict")} == {True}
    bot.clock.at += 400 * DAY
    await failure_costs.prune_logs(bot.context)
    assert await bot.rows("ci_verdict") == await bot.rows("ci_log") == []
    assert await bot.rows("ci_signature") == await bot.rows("ci_signature_day") == []


@pytest.mark.logic
async def test_rules_of_the_settings_come_first_and_a_wrong_file_changes_nothing(
    settings, github, issuer, clock, tmp_path
):
    path = tmp_path / "mine.toml"
    path.write_text("[[rule]]\nname = 'mine'\npattern = 'boom'\nrepos = ['pytorch/*']\n")
    chosen = replace(settings, of_features={LogsSettings: LogsSettings(ci_log_rules=(str(path),))})
    log = "FAILED t.py::test_x - boom\n"
    async with running(chosen, github=github, issuer=issuer, app=github.app, clock=clock) as bot:
        logs = Logs(bot, github)
        await bot.wait(reclassify.RULES_READ_EVERY)
        assert (await logs.verdicts(await logs.arrives(log)))[0]["rule"] == "mine"
        assert (await logs.verdicts(await logs.arrives(log, repo=L3)))[0]["rule"] == "pytest failure"
        path.write_text("[[rule]]\nname = 'ahead'\npattern = 'a(?=b)'\n")
        await bot.wait(reclassify.RULES_READ_EVERY)
        assert (await logs.verdicts(await logs.arrives(log)))[0]["rule"] == "mine"
        async with bot.store.read() as tx:
            newest = {row["source"]: row for row in await store_log.newest_versions(tx)}
        assert "rule 1 'ahead'" in newest[str(path)]["error"]


@pytest.mark.logic
async def test_a_repository_has_rules_of_its_own(bot, github, logs):
    first = await logs.arrives("FAILED t.py::test_x - boom\n")
    assert (await logs.verdicts(first))[0]["rule"] == "pytest failure"
    github.set_file(UPSTREAM, store_log.OWN_RULES, b"[[rule]]\nname = 'own'\npattern = 'boom'\n")
    await bot.wait(reclassify.RULES_READ_EVERY)
    second = await logs.arrives("FAILED t.py::test_x - boom\n")
    assert (await logs.verdicts(second))[0]["rule"] == "own"


async def rules_change(bot, github, pattern, *, repo=UPSTREAM):
    github.set_file(repo, store_log.OWN_RULES, RULE.format(pattern).encode())
    await bot.wait(reclassify.RULES_READ_EVERY)
    await bot.settle(horizon=60)


async def first(logs, job):
    return (await logs.verdicts(job))[0]


@pytest.mark.logic
async def test_verdicts_counts_grid_and_comment_follow_the_rules(bot, github, logs):
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    other = await logs.arrives("FAILED t.py::test_x\n")
    job = await logs.arrives("warn: disk\n##[error]odd\n", trusted=True)
    event, body = push(bot, job.run.head_sha)
    await bot.send(event, body)
    run = await github.start_run(L4, event="repository_dispatch", name="CI")
    reported = await github.start_job(run, "build")
    await bot.report(bot.dispatch(L4), conclusion="failure", run_id=str(run.id))
    await github.finish_job(reported, "failure", log="warn: disk\n##[error]odd\n")
    await bot.wait(60)
    await rules_change(bot, github, "^warn: (.*)")
    assert [(await first(logs, job))[name] for name in ("rule", "kind", "captures")] == [
        "own",
        "infra",
        ["disk"],
    ]
    assert (await first(logs, other))["rule"] == "pytest failure"
    titles = {one["title"] for one in (await bot.get("/api/ci/failures"))[1]["failures"]}
    assert {"own: disk", "pytest failure: t.py::test_x"} <= titles
    bot.clock.advance(60)  # the grid may be kept for some seconds
    _, grid = await bot.get(f"/api/ci/hud/{UPSTREAM}/main")
    assert [cell["line"] for line in grid["lines"] for cell in line["cells"].values()] == ["warn: disk"]
    await rules_change(bot, github, "^warn: (.*)", repo=L4)
    (comment,) = [one for one in github.comments(pull) if one.app is not None]
    assert "infra · " in comment.body
    # the verdict that stayed the same is stored once
    assert len([one for one in await bot.rows("ci_verdict") if one["job_id"] == other.id]) == 1
    assert len({one["ruleset"] for one in await bot.rows("ci_verdict") if one["job_id"] == job.id}) == 2


@pytest.mark.logic
async def test_it_takes_up_where_it_was_and_looks_at_each_log_once(bot, github, logs, monkeypatch):
    jobs = [await logs.arrives("##[error]odd\n") for _ in range(3)]
    named = await logs.arrives("FAILED t.py::test_x\nodd\n")
    monkeypatch.setattr(reclassify, "SLICE", 0.0)  # a run ends after one log
    monkeypatch.setattr(reclassify, "PAUSE", 1000.0)
    github.set_file(UPSTREAM, store_log.OWN_RULES, RULE.format("odd$").encode())
    await bot.wait(reclassify.RULES_READ_EVERY)
    assert (await first(logs, jobs[-1]))["rule"] == "own"
    assert (await first(logs, named))["rule"] == "pytest failure"
    (reached,) = await bot.rows("ci_reclassified")
    assert (reached["phase"], reached["job_id"]) == (0, jobs[-1].id)
    for _ in range(8):
        await bot.settle(horizon=1000)
    assert {(await first(logs, job))["rule"] for job in (*jobs, named)} == {"own"}
    assert (await bot.rows("ci_reclassified"))[0]["phase"] == 2
    at = await bot.rows("task")
    await bot.wait(reclassify.RULES_READ_EVERY)
    assert [one for one in await bot.rows("task") if one["kind"] == "reclassify"] == [
        one for one in at if one["kind"] == "reclassify"
    ]


@pytest.mark.logic
async def test_a_log_that_is_gone_keeps_its_verdict(bot, github, logs):
    gone, kept = [await logs.arrives("##[error]odd\n") for _ in range(2)]
    await bot.context.resource(BLOBS).delete(f"log/{gone.run.repo.id}/{gone.id}")
    await rules_change(bot, github, "odd$")
    assert [(await first(logs, job))["rule"] == "own" for job in (gone, kept)] == [False, True]


async def job_with(bot, github, log, *messages, conclusion="cancelled", **changed):
    run = await github.start_run(UPSTREAM, event="pull_request", head_branch="topic")
    job = await github.start_job(run, "build")
    notes = tuple(LEFT | {"message": message} | changed for message in messages)
    job.check_run.output = Output(title=None, summary=None, text=None, annotations=notes)
    await github.finish_job(job, conclusion, log=log)
    await bot.settle(horizon=15)
    return job


@pytest.mark.logic
@pytest.mark.parametrize(
    ("message", "rule", "kind"), [(OVER, "Job timed out", "timeout"), (LOST, "Runner lost", "infra")]
)
async def test_a_note_beside_the_job_says_why_it_was_cancelled(bot, github, logs, message, rule, kind):
    job = await job_with(bot, github, CANCELED, "Process completed with exit code 1.", f"{message}\nmore")
    found = await logs.verdicts(job)
    assert [(one["rule"], one["kind"], one["line_num"]) for one in found] == [
        (rule, kind, None), ("Cancelled", "cancel", 1)
    ]  # fmt: skip
    assert found[0]["line"] == message
    assert [call.path for call in github.calls if call.path.endswith("/annotations")] == [
        f"/repos/{UPSTREAM}/check-runs/{job.id}/annotations"
    ]
    _, page = await bot.get(f"/{UPSTREAM}/job/{job.id}")
    assert f"{kind} · {message}" in page
    assert "noted by GitHub beside the job" in page
    async with bot.store.transaction() as tx:
        await reclassify.enqueue_due(tx, bot.context.settings)
    await bot.settle(horizon=60)
    assert (await logs.verdicts(job))[0]["rule"] == rule


async def test_a_failed_test_stays_the_verdict_where_a_note_says_less(bot, github, logs):
    failed = "FAILED tests/test_a.py::test_b - assert 2 == 3\n"
    for messages, changed in (
        (["Process completed with exit code 1."], {}),
        ([OVER], {"annotation_level": "notice"}),
    ):
        job = await job_with(bot, github, failed, *messages, conclusion="failure", **changed)
        assert (await logs.verdicts(job))[0]["rule"] == "pytest failure"


async def test_a_log_is_classified_where_the_notes_cannot_be_read(bot, github, logs):
    github.faults.add(path="/annotations", status=404, times=5)
    job = await job_with(bot, github, CANCELED, OVER)
    assert (await logs.verdicts(job))[0]["rule"] == "Cancelled"


@pytest.mark.logic
async def test_a_lost_runner_is_the_verdict_on_a_job_that_left_no_log(bot, github, logs):
    github.faults.add(path="/logs", status=404, times=100)
    job = await job_with(bot, github, CANCELED, LOST, conclusion="failure")
    assert await logs.verdicts(job) == []
    await bot.settle(horizon=8000)
    (found,) = await logs.verdicts(job)
    assert (found["rule"], found["kind"], found["line_num"]) == ("Runner lost", "infra", None)
    _, page = await bot.get(f"/{UPSTREAM}/job/{job.id}")
    assert f"infra · {LOST} · noted by GitHub beside the job" in page
    assert "the log as plain text" not in page


async def test_the_grid_shows_why_a_job_failed(bot, logs):
    job = await logs.arrives("FAILED t.py::test_x - <b>boom</b>\n", trusted=True)
    event, body = push(bot, job.run.head_sha)
    await bot.send(event, body)
    await bot.settle(horizon=60)
    _, answer = await bot.get(f"/api/ci/hud/{UPSTREAM}/main")
    (cell,) = answer["lines"][0]["cells"].values()
    _, failures = await bot.get("/api/ci/failures")
    assert (cell["line"], cell["sig"]) == (
        "FAILED t.py::test_x - <b>boom</b>",
        failures["failures"][0]["signature"],
    )
    _, page = await bot.get(f"/hud/{UPSTREAM}/main")
    assert "FAILED t.py::test_x - &lt;b&gt;boom&lt;/b&gt;" in page
    await logs.again(job)
    _, again = await bot.get(f"/api/ci/hud/{UPSTREAM}/main")
    assert again["lines"] == answer["lines"]


async def test_numbers_of_the_branch_tell_failures_by_kind(bot, logs, github):
    """What no rule knows is unclassified; a failure of the infrastructure breaks no job."""
    lost = "##[error]The runner has received a shutdown signal.\n"
    for log in (lost, "nothing that any rule knows\n", "FAILED t.py::test_x - boom\n"):
        await github.push(UPSTREAM)
        await logs.arrives(log, trusted=True)
    await bot.settle()
    await bot.wait(60)
    whole = (await bot.get(f"/api/ci/metrics/{UPSTREAM}"))[1]["whole"]
    assert whole["failures"] == {"infra": 1, "none": 1, "test": 1}
    assert whole["unclassified_share"] == pytest.approx(1 / 3)
    text = await page_text(bot, f"/{UPSTREAM}/metrics")
    assert "Failures unclassified 33.3 %" in text
    assert "infra 1 no rule matches 1 test 1" in text
    (reliability,) = (await bot.get(f"/api/ci/reliability/{UPSTREAM}"))[1]["jobs"]
    assert (reliability["infra"], reliability["broken"], reliability["flaky"]) == (1, 0, 2)
    grid = (await bot.get(f"/api/ci/hud/{UPSTREAM}/main"))[1]
    assert [cell["kind"] for line in grid["lines"] for cell in line["cells"].values()] == [
        "test",
        "none",
        "infra",
    ]
    assert ": failure, infrastructure: ##[error]The runner" in (await bot.get(f"/hud/{UPSTREAM}/main"))[1]
