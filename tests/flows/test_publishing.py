"""Check runs of jobs, and annotations in the files of a pull request."""

from __future__ import annotations

import pytest

from tests.flows.scenarios import JOBS, open_under
from tests.harness import L3, L4, UPSTREAM
from tests.serving import SQLITE


def made(github, pull, name):
    return [run for run in github.check_runs_all(UPSTREAM, pull.head_sha) if run.name == name]


@pytest.mark.logic
async def test_each_job_has_a_check_of_its_own_where_that_is_asked_for(bot, github):
    pull = await open_under(bot, github, JOBS)
    for job, conclusion in (("build", "success"), ("test / 1", "failure")):
        await bot.report(bot.dispatch(L4), conclusion=conclusion, job=job, run_id="1")
    await bot.report(bot.dispatch(L4), status="in_progress", job="slow", run_id="1")
    await bot.settle(horizon=20)
    checks = bot.checks(UPSTREAM, pull.head_sha)
    assert {name: checks[name][:2] for name in checks} == {
        "oot / gate": ("completed", "failure"),
        "oot / tpu": ("completed", "failure"),
        "oot / tpu / CI / build": ("completed", "success"),
        "oot / tpu / CI / test / 1": ("completed", "failure"),
        "oot / tpu / CI / slow": ("in_progress", None),
    }
    assert len({run.external_id for run in github.check_runs_all(UPSTREAM, pull.head_sha)}) == 5


@SQLITE
async def test_no_backend_uses_up_what_all_may_make_by_its_jobs_or_its_attempts(bot, github):
    pull = await open_under(bot, github, JOBS)
    for number in range(52):
        await bot.report(bot.dispatch(L4), status="in_progress", job=f"job {number}", run_id="1")
    await bot.report(bot.dispatch(L4), conclusion="failure", job="last", run_id="1")
    await bot.wait(120)
    names = [run.name for run in github.check_runs_all(UPSTREAM, pull.head_sha)]
    assert sum(name.startswith("oot / tpu / CI / ") for name in names) == 50
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / gate"][:2] == ("completed", "failure")
    for attempt in range(2, 24):
        conclusion = "success" if attempt % 2 else "failure"
        await bot.report(bot.dispatch(L4), conclusion=conclusion, job="last", run_id="1", attempt=attempt)
        await bot.settle(horizon=30)
    assert len(made(github, pull, "oot / tpu")) == 20


@pytest.mark.logic
async def test_a_job_run_again_is_a_new_check_of_the_same_name(bot, github):
    pull = await open_under(bot, github, JOBS)
    for attempt, conclusion in ((1, "failure"), (2, "success")):
        await bot.report(bot.dispatch(L4), conclusion=conclusion, run_id="1", attempt=attempt)
        await bot.settle(horizon=20)
    assert [run.conclusion for run in made(github, pull, "oot / tpu / CI / build")] == ["failure", "success"]


@pytest.mark.logic
async def test_checks_of_jobs_follow_the_label_as_well(bot, github):
    pull = await open_under(bot, github, JOBS)
    await bot.report(bot.dispatch(L3), status="in_progress")
    await bot.settle()
    assert not made(github, pull, "oot / npu / CI / build")
    bot.clock.advance(5)
    await github.label(pull, "ciflow/oot/npu")
    await bot.settle(horizon=20)
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / npu / CI / build"][:2] == ("in_progress", None)
    bot.clock.advance(5)
    await github.unlabel(pull, "ciflow/oot/npu")
    await bot.settle(horizon=20)
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / npu / CI / build"][:2] == ("completed", "neutral")


@pytest.mark.logic
async def test_jobs_of_two_runs_that_share_a_name_are_told_apart_and_written_once(bot, github):
    pull = await open_under(bot, github, JOBS)
    for run, conclusion in (("1", "failure"), ("2", "success")):
        await bot.report(bot.dispatch(L4), conclusion=conclusion, run_id=run)
        bot.clock.advance(1)
    await bot.settle(horizon=20)
    for name, conclusion in (("build", "failure"), ("build (2)", "success")):
        (check,) = made(github, pull, f"oot / tpu / CI / {name}")
        assert check.conclusion == conclusion
    before = len([call for call in github.calls if "check-runs" in call.path])
    for _ in range(3):
        async with bot.store.transaction() as tx:
            tx.enqueue("publish", f"{UPSTREAM}#{pull.number}")
        await bot.settle(horizon=20)
    assert len([call for call in github.calls if "check-runs" in call.path]) == before


@pytest.mark.logic
async def test_a_check_that_github_has_deleted_is_made_again_once_though_the_answer_is_lost(bot, github):
    pull = await open_under(bot, github)
    (deleted,) = made(github, pull, "oot / tpu")
    del github.state.repo(UPSTREAM).check_runs[deleted.id]
    github.faults.add(method="POST", path="/check-runs$", when="after", status=502)
    await bot.report(bot.dispatch(L4), conclusion="failure")
    await bot.settle(horizon=60)
    (check,) = made(github, pull, "oot / tpu")
    assert (check.conclusion, check.external_id) == ("failure", deleted.external_id)


def failed(*places):
    return [
        {"name": f"test_{number}", "file": file, "line": line, "message": f"expected {number}"}
        for number, (file, line) in enumerate(places)
    ]


@pytest.mark.logic
async def test_only_failed_tests_in_files_of_the_pull_request_are_marked(bot, github):
    pull = await open_under(bot, github, files=("src/op.py", "src/other.py"))
    tests = failed(
        ("src/op.py", 3), ("./src/other.py", 9), ("src/far.py", 1), ("/src/op.py", 3), ("op.py", 3), (None, 4),
        ("src/op.py", None), ("src/op.py", 0),
    )  # fmt: skip
    tests.append({"name": "in words", "message": "failed at src/op.py:7", "stacktrace": "src/op.py:7"})
    await bot.report(bot.dispatch(L4), conclusion="failure", failed_tests=tests)
    await bot.settle()
    (check,) = made(github, pull, "oot / tpu")
    marks = [(one["path"], one["start_line"], one["message"]) for one in check.output.annotations]
    assert marks == [("src/op.py", 3, "expected 0"), ("src/other.py", 9, "expected 1")]


async def test_marks_are_sent_in_lots_and_none_twice_even_when_an_answer_is_lost(bot, github):
    pull = await open_under(bot, github, files=("src/op.py",))
    github.faults.add(method="PATCH", path=r"/check-runs/\d+$", when="after", status=502, times=2)
    tests = failed(*(("src/op.py", line) for line in range(1, 121)))
    await bot.report(bot.dispatch(L4), conclusion="failure", failed_tests=tests)
    await bot.wait(300)
    (check,) = made(github, pull, "oot / tpu")
    assert [one["start_line"] for one in check.output.annotations] == list(range(1, 121))
    sent = [
        call.body["output"].get("annotations", ())
        for call in github.calls
        if call.method == "PATCH" and "check-runs" in call.path
    ]
    assert max(map(len, sent)) == 50


@pytest.mark.logic
async def test_marks_of_another_failing_job_are_added_to_those_there(bot, github):
    pull = await open_under(bot, github, files=("src/op.py",))
    for job, line in (("z", 5), ("a", 3)):
        tests = [{"name": f"test_{job}", "file": "src/op.py", "line": line}]
        await bot.report(bot.dispatch(L4), conclusion="failure", job=job, run_id="1", failed_tests=tests)
        await bot.settle(horizon=20)
    (check,) = made(github, pull, "oot / tpu")
    assert sorted(one["start_line"] for one in check.output.annotations) == [3, 5]
    reads = [call for call in github.calls if call.path.endswith(f"/pulls/{pull.number}/files")]
    assert len(reads) == 1


@pytest.mark.logic
async def test_meant_for_another_branch_its_files_and_where_it_left_are_asked_for_anew(bot, github):
    await github.push(UPSTREAM, "release", message="a branch")
    pull = await open_under(bot, github, files=("src/op.py",))
    tests = [{"name": "test_a", "file": "src/op.py", "line": 3}]
    for base in (None, "release"):
        if base:
            bot.clock.advance(60)
            await github.retarget(pull, base)
            await bot.settle(horizon=20)
        await bot.report(bot.dispatch(L4), conclusion="failure", failed_tests=tests)
        await bot.settle(horizon=20)
    for what in (f"/pulls/{pull.number}/files", "/compare/"):
        assert len([call for call in github.calls if what in call.path]) == 2


@SQLITE
async def test_a_changed_allowlist_does_not_publish_every_open_pull_request_at_once(bot, github):
    for _ in range(24):
        await github.open_pull(UPSTREAM)
    await bot.wait(120)
    await bot.list_backends(JOBS)
    waiting = [
        row for row in await bot.rows("task") if row["kind"] == "publish" and row["state"] == "waiting"
    ]
    assert [row["due_at"] > bot.clock.now() for row in waiting] == [True] * 4
    assert {row["key"] for row in waiting} == {f"{UPSTREAM}#{number}" for number in range(1, 5)}, "the oldest"
