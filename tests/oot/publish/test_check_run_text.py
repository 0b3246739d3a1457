"""Check runs: their text, as in its snapshot, within GitHub's limits, and inert; and the gate's verdict in words."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.oot.publish import check as annotate
from bot.oot.publish.check import annotate_backend
from bot.oot.publish.check_text import CheckRun, gate_check
from bot.oot.verdict.gate import judge_gate
from bot.oot.verdict.verdict import State
from bot.oot.verdict.view import Backend, History
from bot.web.blocks import TestMark as Mark
from tests import samples
from tests.oot.publish import injections
from tests.oot.publish.checked import DONE, FAILURE, HELD, RUNNING, SUCCESS, check, gate, per_job, red
from tests.oot.publish.heads import HEAD, HUD, START, backend, failed_test, failing_job, hostile, job
from tests.oot.publish.rendered import complaints, see
from tests.oot.publish.snapshots import snapshot

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


def test_the_body_carries_what_github_asks_for():
    body = check(red()).body()
    assert body["name"] == "oot / npu"
    assert body["head_sha"] == HEAD
    assert body["external_id"] == "key-1"
    assert body["details_url"] == f"{HUD}/octo/core/pull/7#npu"
    assert body["started_at"] == "2026-09-21T14:13:20Z"
    assert body["completed_at"] == "2026-09-21T14:44:20Z"
    assert set(body["output"]) == {"title", "summary", "text"}


def test_the_body_of_a_queued_check_has_no_empty_fields():
    body = check(backend("npu", state=State.QUEUED, page_url="", dispatched_at=None)).body()
    assert set(body) == {"name", "head_sha", "external_id", "status", "output", "actions"}
    assert set(body["output"]) == {"title", "summary"}


@pytest.mark.parametrize("name", ["red_l4", "red_l3", "never_started", "gate_red", "gate_waiting"])
def test_a_check_run_reads_as_in_its_snapshot(name):
    silent = backend("asic", state=State.NEVER_STARTED, reason="no report within 24 h")
    ignored = backend("asic", state=FAILURE, ignored_by="carol", ignored_reason="lab is moving")
    running = backend("tpu", *DONE, job("d", None), state=RUNNING)
    known = failing_job("slow", History.KNOWN, run_attempt=2)
    run = {
        "red_l4": lambda: check(red()),
        "red_l3": lambda: check(backend("fpga", known, job("e", None), state=FAILURE, level=3)),
        "never_started": lambda: check(silent),
        "gate_red": lambda: gate(red(), running, ignored),
        "gate_waiting": lambda: gate(running, backend("npu", state=HELD), ignored),
    }[name]()
    text = f"# {run.name}\n\n## {run.title}\n\n{run.summary}\n\n---\n\n{run.text}\n"
    assert text == snapshot(f"check_{name}", text)


def test_very_much_is_cut_to_githubs_bytes_and_says_where_the_rest_is():
    trace = "日本語\n" * 2_000
    tests = tuple(failed_test(f"試験_{n}", stacktrace=trace) for n in range(60))
    jobs = [failing_job(f"部品 {n:04}", failed_tests=tests, failed=60) for n in range(300)]
    output = check(backend("npu", *jobs, state=FAILURE)).body()["output"]
    for part in ("summary", "text"):
        assert len(output[part].encode()) <= 65_535
        assert complaints(output[part]) == []
    assert re.search(r"Cut to fit: [\d,]+ of [\d,]+ bytes are left out", output["text"])
    assert ("All of it is here", f"{HUD}/octo/core/pull/7#npu") in see(output["text"]).links
    assert "…and 200 more jobs" in output["summary"]


def test_a_limit_met_exactly_is_not_cut():
    fields = {"name": "n", "head_sha": HEAD, "external_id": "e", "status": "queued", "title": "t"}
    fitting = "ü" * 32_767 + "x"
    assert CheckRun(**fields, summary=fitting).body()["output"]["summary"] == fitting
    longer = CheckRun(**fields, summary=fitting + "x").body()["output"]["summary"]
    assert "Cut to fit" in longer


@pytest.mark.parametrize("word", samples.each(3, injections.ALL), ids=injections.short)
def test_no_injection_does_anything_in_a_check_run(word):
    does_nothing(word)


@settings(max_examples=40)
@given(st.text(st.characters(codec=None), max_size=120) | st.text("`|@#<>!-/[]()*_~$\\\n ", max_size=40))
def test_random_words_do_nothing_in_a_check_run(word):
    does_nothing(word)


def does_nothing(word):
    head = hostile(word)
    one = head.backends[5]
    waiting = judge_gate([], unknown=word)
    unknown = gate_check(waiting, prefix="oot", head_sha=HEAD, external_id="k", page_url=word)
    marked = annotate.annotate_backend(check(one), one, (), {word.removeprefix("./")})
    assert annotate.annotate_backend(check(one), one, (), {"src/op.py"}).annotations == ()
    runs = [check(one) for one in head.backends] + [gate(*head.backends), unknown, marked]
    runs += per_job(one)
    assert len(marked.annotations) == 2
    for mark in marked.annotations:
        assert mark["path"] == word.removeprefix("./")  # as GitHub itself listed it
        for field, most in (("title", 255), ("message", 64_000)):
            assert len(mark[field].splitlines()) == 1
            assert len(mark[field].encode()) <= most * 4
            assert len(mark[field]) <= most
            assert not re.search(r"@\w", mark[field])
    for run in runs:
        body = run.body()
        for line in (body["name"], body["output"]["title"]):
            assert len(line.splitlines()) == 1
            assert len(line) <= 255
            assert not re.search(r"@\w", line)
        for part in ("summary", "text"):
            assert complaints(body["output"].get(part, "")) == []


def drawn(*backends):
    """A gate's conclusion and title."""
    verdict = judge_gate(backends)
    check = gate_check(verdict, prefix="oot", head_sha="a" * 40, external_id="", page_url="")
    return check.conclusion, check.title


def tpu(state, level=4, **fields):
    return Backend(repo="org/tpu", device="tpu", level=level, state=state, **fields)


PASSED = Backend(repo="org/gpu", device="gpu", level=4, state=State.SUCCESS)


@pytest.mark.parametrize("state", [state for state in State if state is not State.SUCCESS])
def test_any_backend_that_has_not_passed_keeps_it_from_green(state):
    conclusion, title = drawn(PASSED, tpu(state))
    assert conclusion == ("failure" if state.finished else None)
    assert "tpu" in title or "ok-to-test" in title


def test_a_backend_of_unknown_level_keeps_it_from_green_even_when_it_passed():
    assert drawn(PASSED, tpu(State.SUCCESS, level=0))[0] is None


def test_all_passed_is_green_and_lower_levels_do_not_count():
    low = Backend(repo="org/npu", device="npu", level=3, state=State.FAILURE)
    assert drawn(PASSED, tpu(State.SUCCESS), low) == ("success", "2 blocking backends passed")


@pytest.mark.parametrize("state", list(State))
def test_an_ignored_backend_counts_as_passed_and_is_counted(state):
    ignored = tpu(state, ignored_by="alice", ignored_reason="lab moves")
    assert drawn(PASSED, ignored) == ("success", "1 blocking backend passed, 1 ignored")


OK, OFF = backend("ok"), {"ignored_by": "carol", "ignored_reason": "lab is moving"}


@pytest.mark.parametrize(
    ("backends", "conclusion", "title"),
    [
        ([], "success", "no blocking backend"),
        ([backend("a", state=FAILURE, level=3)], "success", "no blocking backend"),
        ([OK], "success", "1 blocking backend passed"),
        ([OK, backend("b"), backend("c", level=3, state=FAILURE)], "success", "2 blocking backends passed"),
        ([OK, backend("b", state=FAILURE, **OFF)], "success", "1 blocking backend passed, 1 ignored"),
        ([OK, backend("b", state=RUNNING, **OFF)], "success", "1 blocking backend passed, 1 ignored"),
        (
            [OK, backend("tpu", state=RUNNING), backend("npu", state=State.QUEUED)],
            None,
            "waiting for npu, tpu",
        ),
        ([OK, backend("npu", state=State.CONFIRMING)], None, "waiting for npu"),
        ([OK, backend("npu", state=HELD)], None, "needs oot/ok-to-test"),
        (
            [backend("npu", state=HELD), backend("tpu", state=RUNNING)],
            None,
            "waiting for tpu; needs oot/ok-to-test",
        ),
        ([OK, backend("npu", state=FAILURE), backend("tpu", state=RUNNING)], "failure", "npu failed"),
        ([OK, backend("npu", state=State.CANCELLED)], "failure", "npu cancelled"),
        ([OK, backend("npu", state=State.NEUTRAL)], "failure", "npu neutral"),
        ([OK, backend("npu", state=State.TIMED_OUT)], "failure", "npu timed out"),
        ([OK, backend("npu", state=State.NEVER_STARTED)], "failure", "npu never started"),
        ([OK, backend("npu", state=State.NOT_INSTALLED)], "failure", "npu not installed"),
        ([OK, backend("npu", level=0)], None, "waiting for npu"),
        ([OK, backend("npu", level=5)], None, "waiting for npu"),
    ],
)
def test_the_gate_is_green_only_when_every_blocking_backend_is(backends, conclusion, title):
    run = gate(*backends)
    assert (run.conclusion, run.title) == (conclusion, title)
    assert run.status == ("completed" if conclusion else "in_progress")
    assert run.actions == ()


def test_the_gate_names_who_ignored_what_and_why():
    summary = gate(OK, backend("npu", state=FAILURE, **OFF)).summary
    assert "`npu` is ignored on this commit by `carol`: lab is moving." in summary


def test_the_gate_ends_with_the_last_result():
    late = backend("tpu", dispatched_at=START, finished_at=START + 3_600_000)
    assert gate(OK, late).completed_at == START + 3_600_000
    assert gate(late, backend("npu", state=RUNNING)).completed_at is None


def test_the_same_backends_in_another_order_make_the_same_gate():
    others = [OK, backend("b", state=RUNNING), backend("c", state=HELD)]
    assert gate(*others) == gate(*reversed(others))
