"""The text of check runs: names, titles, states, conclusions."""

import pytest

from bot.oot.publish.check import annotate_backend
from bot.oot.verdict.verdict import State
from bot.oot.verdict.view import History
from bot.web.blocks import TestMark as Mark
from tests.oot.publish.checked import DONE, FAILURE, HELD, RUNNING, SUCCESS, check, gate, per_job, red
from tests.oot.publish.heads import backend, failing_job, job

TWINS = {
    "a slash in the workflow": (("a", "b / c"), ("a / b", "c")),
    "an end nobody sees": (("ci", "x" * 300 + "1"), ("ci", "x" * 300 + "2")),
    "an end right at the limit": (("ci", "x" * 250 + "1"), ("ci", "x" * 250 + "2")),
    "spaces": (("ci", "a b"), ("ci", "a  b")),
    "the same name in two runs": (("ci", "a"), ("ci", "a")),
    "long names in two runs": (("ci", "x" * 400), ("ci", "x" * 400)),
}


@pytest.mark.parametrize("twins", TWINS.values(), ids=TWINS)
def test_two_jobs_never_have_one_check_run(twins):
    jobs = [job(name, workflow=workflow, run_id=str(at)) for at, (workflow, name) in enumerate(twins)]
    names = [run.name for run in per_job(backend("npu", *jobs))]
    assert len(set(names)) == 2
    assert all(len(name) <= 255 for name in names)
    assert names == [run.name for run in per_job(backend("npu", *jobs))]


def test_a_plain_job_keeps_its_plain_name_whatever_runs_beside_it():
    jobs = [job("a"), job("a", run_id="78"), job("a (2)", run_id="79"), job("測試 🚀"), job("linux/arm64:3")]
    names = [run.name.removeprefix("oot / npu / ci / ") for run in per_job(backend("npu", *jobs))]
    assert names == ["a", "a (2)", "a (2) (2)", "測試 🚀", "linux/arm64:3"]


def test_a_name_is_the_device_or_else_the_repository():
    assert check(backend("npu")).name == "oot / npu"
    assert check(backend("npu", device=None)).name == "oot / org/npu"
    assert gate().name == "oot / gate"
    assert [run.name for run in per_job(red())] == ["oot / npu / ci / unit", "oot / npu / ci / build"]


COUNTED = job("unit", passed=8430, failed=0, skipped=20, minutes=31)


@pytest.mark.parametrize(
    ("one", "title"),
    [
        (backend("npu", state=State.QUEUED), "queued"),
        (backend("npu", state=State.QUEUED, attempt=2), "queued, attempt 2"),
        (backend("npu", state=RUNNING), "running"),
        (backend("npu", *DONE, job("d", None), state=RUNNING), "3 done, 1 running"),
        (backend("npu", job("a", "failure"), job("b", None), state=RUNNING), "1 done (1 failed), 1 running"),
        (backend("npu", *DONE, state=State.CONFIRMING), "reported success, being confirmed"),
        (backend("npu", state=HELD), "needs oot/ok-to-test"),
        (backend("npu", COUNTED), "8430 passed, 20 skipped in 31 min (L4)"),
        (backend("npu", *DONE, level=3), "3 jobs passed in 12 min (L3)"),
        (backend("npu", job("a", minutes=125)), "1 job passed in 2 h 5 min (L4)"),
        (backend("npu"), "passed"),
        (red(level=3), "2 failed, 8430 passed, 20 skipped in 31 min (L3)"),
        (
            backend("npu", *DONE, job("d", "failure"), job("e", "stale", minutes=31), state=FAILURE),
            "2 of 5 jobs failed in 31 min (L4)",
        ),
        (backend("npu", COUNTED, job("lint", "failure"), state=FAILURE), "1 of 2 jobs failed in 31 min (L4)"),
        (
            backend("npu", job("a", "failure"), job("b", None), state=FAILURE),
            "1 of 2 jobs failed, 1 still running (L4)",
        ),
        (
            backend("npu", *DONE, state=FAILURE, reason="GitHub says the run failed."),
            "failed: GitHub says the run failed",
        ),
        (
            backend("npu", job("a", passed=5, failed=2)),
            "5 passed, 2 failed without failing their job in 12 min (L4)",
        ),
        (
            backend("npu", state=State.NEVER_STARTED, reason="no report within 24 h"),
            "never started: no report within 24 h",
        ),
        (backend("npu", state=State.NOT_INSTALLED), "not installed"),
        (
            backend("npu", state=State.DISPATCH_FAILED, reason="GitHub answered 422"),
            "could not be dispatched: GitHub answered 422",
        ),
        (
            backend("npu", *DONE, job("d", "timed_out"), state=State.TIMED_OUT),
            "timed out: 1 of 4 jobs did not finish",
        ),
        (backend("npu", state=State.CANCELLED, reason="superseded"), "cancelled: superseded"),
    ],
)
def test_the_title_is_the_verdict_in_one_line(one, title):
    assert check(one).title == title


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (None, ""),
        (-5, "0 s"),
        (0.4, "0 s"),
        (119, "119 s"),
        (120, "2 min"),
        (3_569, "59 min"),
        (3_599, "1 h"),
        (7_500, "2 h 5 min"),
        (84_600, "23 h 30 min"),
        (86_400, "24 h"),
        (172_800, "2 d"),
        (273_600, "3 d 4 h"),
    ],
)
def test_a_duration_is_shown_in_its_two_largest_units(seconds, shown):
    (run,) = per_job(backend("npu", job("a", execution_time=seconds)))
    assert run.title == (f"passed in {shown} (L4)" if shown else "passed (L4)")


@pytest.mark.parametrize(
    ("state", "status", "conclusion"),
    [
        (State.QUEUED, "queued", None),
        (State.HELD, "queued", None),
        (State.RUNNING, "in_progress", None),
        (State.CONFIRMING, "in_progress", None),
        (State.SUCCESS, "completed", "success"),
        (State.FAILURE, "completed", "failure"),
        (State.TIMED_OUT, "completed", "timed_out"),
        (State.CANCELLED, "completed", "cancelled"),
        (State.NEUTRAL, "completed", "neutral"),
        (State.NEVER_STARTED, "completed", "failure"),
        (State.NOT_INSTALLED, "completed", "failure"),
        (State.DISPATCH_FAILED, "completed", "failure"),
    ],
)
def test_every_state_concludes_as_promised(state, status, conclusion):
    body = check(backend("npu", state=state)).body()
    assert (body["status"], body.get("conclusion")) == (status, conclusion)


def test_a_failure_at_level_3_is_neutral_and_says_so_unless_told_otherwise():
    assert check(red(level=3)).conclusion == "neutral"
    assert "does not block merging" in check(red(level=3)).summary
    assert check(red(level=3), failure_conclusion="failure").conclusion == "failure"
    assert check(red(level=4)).conclusion == "failure"
    assert [run.conclusion for run in per_job(red(level=3))] == ["neutral", "success"]
    silent = backend("npu", job("a", "timed_out"), state=State.TIMED_OUT, level=3)
    assert (check(silent).conclusion, per_job(silent)[0].conclusion) == ("neutral", "neutral")
    assert per_job(silent, failure_conclusion="failure")[0].conclusion == "timed_out"


@pytest.mark.parametrize(
    ("state", "offered"),
    [
        (RUNNING, []),
        (State.QUEUED, []),
        (SUCCESS, ["rerun-all"]),
        (State.CANCELLED, ["rerun-all"]),
        (FAILURE, ["rerun-failed", "rerun-all"]),
        (State.NEVER_STARTED, ["rerun-failed", "rerun-all"]),
    ],
)
def test_what_is_over_can_be_run_again(state, offered):
    actions = check(backend("npu", state=state)).body()["actions"]
    assert [action["identifier"] for action in actions] == offered
    for action in actions:  # GitHub refuses longer ones
        assert len(action["label"]) <= 20
        assert len(action["identifier"]) <= 20
        assert len(action["description"]) <= 40


def test_a_job_check_leads_to_its_own_log():
    unit, build = per_job(red())
    assert unit.details_url == "https://ci.example/77/unit"
    assert unit.external_id == "key-unit"
    assert unit.title == "failed in 31 min (L4)"
    assert "AssertionError: 3 != 4" in unit.text
    assert (build.status, build.conclusion, build.text) == ("completed", "success", "")
    (running,) = per_job(backend("npu", job("a", None), state=RUNNING))
    assert (running.status, running.conclusion, running.completed_at) == ("in_progress", None, None)


@pytest.mark.parametrize("conclusion", ["action_required", "startup_failure", "stale", "unheard_of"])
def test_a_job_conclusion_that_cannot_be_set_is_a_failure(conclusion):
    (run,) = per_job(backend("npu", job("a", conclusion), state=FAILURE))
    assert run.conclusion == "failure"


@pytest.mark.parametrize(
    ("fields", "history", "level"),
    [
        ({"level": 4}, History.NEW, "failure"),
        ({"level": 4}, History.NO_BASELINE, "failure"),
        ({"level": 4}, History.KNOWN, "notice"),
        ({"level": 4, "ignored_by": "carol"}, History.NEW, "warning"),
        ({"level": 3}, History.NEW, "warning"),
        ({"level": 3}, History.FLAKY, "notice"),
    ],
)
def test_an_annotation_is_as_severe_as_the_failure(fields, history, level):
    one = backend("npu", failing_job(history=history), state=State.FAILURE, **fields)
    mark = Mark(
        backend="org/npu", job="unit", file="tests/ops.py", line=40, name="ops.test_sub", message="no"
    )
    found = annotate_backend(check(one), one, [mark], {"tests/ops.py"}).annotations
    assert [(at["start_line"], at["annotation_level"]) for at in found[:1]] == [(12, level)]
    assert {at["annotation_level"] for at in found[1:]} == {"failure" if one.decides else "warning"}
