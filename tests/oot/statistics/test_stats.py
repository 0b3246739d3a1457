"""Numbers have the meaning that docs/statistics.md defines; times are added up in steps, whatever their order and parts."""

import re
import statistics
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.oot.statistics import histogram
from bot.oot.statistics.stats import BackendStats, grade
from tests.by_hand import backend_stats

DOCS = Path(__file__).parents[3] / "docs" / "statistics.md"
CONCLUSIONS = (
    "success", "failure", "timed_out", "action_required", "startup_failure", "stale",
    "cancelled", "skipped", "neutral",
)  # fmt: skip
FAILURES = ("failure", "action_required", "startup_failure", "stale")


def job(
    conclusion="success", *, name="build", attempt=1, run="1", dispatch="d", flags=None, at=1_000, **fields
):
    """One attempt of one job; no conclusion means it runs."""
    given = {
        "dispatch_id": dispatch,
        "status": "completed" if conclusion else "in_progress",
        "conclusion": conclusion,
        "downstream_repo": "org/npu",
        "delivery_id": f"delivery of {dispatch}",
        "workflow_name": "CI",
        "job_name": name,
        "run_id": run,
        "run_attempt": attempt,
        "queue_time": None,
        "execution_time": None,
        "flags": flags or {},
        "source": "callback",
        "received_at": at,
        "updated_at": at,
    }
    return given | fields


def dispatch(identifier, state, backend="org/npu"):
    return {"id": identifier, "state": state, "backend_key": backend}


def named(*conclusions):
    return [job(conclusion, name=f"job {number}") for number, conclusion in enumerate(conclusions)]


def test_a_backend_nobody_heard_of_has_no_rate_and_no_times():
    assert backend_stats([], []) == BackendStats()
    assert grade(BackendStats().pass_rate) == "none"


@pytest.mark.parametrize("conclusion", FAILURES)
def test_what_needs_a_person_counts_as_failure(conclusion):
    found = backend_stats(named("success", conclusion), [])
    assert (found.success, found.failure, found.pass_rate) == (1, 1, 0.5)


@pytest.mark.parametrize("conclusion", ["cancelled", "skipped", "neutral", None])
def test_what_has_no_verdict_stays_outside_the_rate(conclusion):
    found = backend_stats(named("success", conclusion), [])
    assert found.pass_rate == 1
    assert found.runs == 2
    assert found.rated == 1


def test_timed_out_and_never_started_lower_the_rate():
    found = backend_stats(
        named("success", "timed_out"), [dispatch("x", "never_started"), dispatch("y", "sent")]
    )
    assert (found.timed_out, found.never_started, found.rated) == (1, 1, 3)
    assert found.pass_rate == pytest.approx(1 / 3)
    assert found.runs == 2


def test_only_the_latest_attempt_of_a_job_counts_whatever_order_rows_come_in():
    attempts = [job("failure", attempt=1, execution_time=5.0), job("success", attempt=2, execution_time=9.0)]
    other = job("failure", name="test", attempt=1)
    for rows in ([*attempts, other], [other, *reversed(attempts)]):
        found = backend_stats(rows, [])
        assert (found.runs, found.success, found.failure) == (2, 1, 1)
        assert found.median_execution_time == 9.0


def test_the_same_job_of_another_run_or_delivery_counts_on_its_own():
    rows = [job(run="1"), job("failure", run="2"), job("failure", run="1", dispatch="e")]
    assert backend_stats(rows, []).runs == 3


def test_a_superseded_dispatch_and_its_jobs_stay_outside():
    rows = [job("failure", dispatch="old"), job("success", dispatch="new", run="2")]
    found = backend_stats(rows, [dispatch("old", "superseded"), dispatch("unsent", "superseded")])
    assert (found.runs, found.pass_rate, found.superseded) == (1, 1.0, 1)


def test_a_late_report_takes_never_started_back():
    found = backend_stats([job(dispatch="late")], [dispatch("late", "never_started")])
    assert (found.never_started, found.pass_rate) == (0, 1.0)


def test_a_dispatch_that_could_not_be_sent_is_shown_but_says_nothing_of_the_backend():
    found = backend_stats([], [dispatch("a", "failed"), dispatch("b", "not_installed")])
    assert (found.not_dispatched, found.pass_rate) == (2, None)


def test_a_refused_report_is_not_counted_at_all():
    found = backend_stats([job("failure", flags={"refused": True}, at=9_000), job(run="2", at=5_000)], [])
    assert (found.runs, found.pass_rate, found.last_at) == (1, 1.0, 5_000)


def test_our_own_time_out_is_no_report_of_the_backend():
    swept = job("timed_out", flags={"swept": True}, at=1_000, updated_at=9_000)
    assert backend_stats([swept], []).last_at == 1_000
    assert backend_stats([job(at=1_000, updated_at=9_000)], []).last_at == 9_000


def test_times_are_middle_and_nine_tenths_of_those_known():
    rows = [job(name=str(n), queue_time=float(n), execution_time=n * 10.0) for n in range(1, 11)]
    rows.append(job(name="unknown"))
    found = backend_stats(rows, [])
    assert (found.median_queue_time, found.p90_queue_time) == (5.5, 9.0)
    assert (found.median_execution_time, found.p90_execution_time) == (55.0, 90.0)


@pytest.mark.parametrize(
    ("rate", "colour"),
    [(1.0, "green"), (0.95, "green"), (0.949, "amber"), (0.8, "amber"), (0.799, "red"), (0.0, "red")],
)
def test_green_from_95_amber_from_80_else_red(rate, colour):
    assert grade(rate) == colour


def test_a_job_that_relay_and_backend_both_told_of_counts_as_the_backend_told_it():
    rows = [job("failure", source="relay"), job("success")]
    for order in (rows, rows[::-1]):
        found = backend_stats(order, [])
        assert (found.runs, found.success) == (1, 1)


def identity(row):
    return row["delivery_id"], row["run_id"], row["workflow_name"], row["job_name"], row["run_attempt"]


attempts = st.builds(
    job,
    st.sampled_from([*CONCLUSIONS, None]),
    name=st.sampled_from("ab"),
    run=st.sampled_from("12"),
    attempt=st.integers(1, 3),
    dispatch=st.sampled_from("pqrs"),
    execution_time=st.none() | st.floats(0, 9e5),
    queue_time=st.none() | st.floats(0, 9e5),
)
dispatches = st.lists(
    st.builds(
        dispatch,
        st.sampled_from("pqrstuvw"),
        st.sampled_from(["sent", "never_started", "superseded", "failed", "not_installed"]),
    ),
    unique_by=lambda row: row["id"],
)


@given(st.lists(attempts, max_size=30, unique_by=identity), dispatches)
def test_numbers_agree_with_counting_by_hand(rows, asked):
    """The definition once more, as slowly and plainly as it is written down."""
    states = {row["id"]: row["state"] for row in asked}
    counted = [
        row
        for row in rows
        if states.get(row["dispatch_id"]) != "superseded"
        and not any(
            identity(row)[:-1] == identity(other)[:-1] and identity(other) > identity(row) for other in rows
        )
    ]
    ended = [row["conclusion"] for row in counted if row["status"] == "completed"]
    silent = [
        name
        for name, state in states.items()
        if state == "never_started" and name not in {row["dispatch_id"] for row in rows}
    ]
    good = ended.count("success")
    bad = sum(ended.count(word) for word in (*FAILURES, "timed_out")) + len(silent)
    found = backend_stats(rows, asked)
    assert found.pass_rate == (good / (good + bad) if good + bad else None)
    assert found.runs == len(counted)
    assert found.never_started == len(silent)
    parts = (found.success, found.failure, found.timed_out, found.cancelled, found.skipped, found.neutral)
    assert sum(parts) + found.running == found.runs
    check_times(
        [row["execution_time"] for row in counted], found.median_execution_time, found.p90_execution_time
    )
    check_times([row["queue_time"] for row in counted], found.median_queue_time, found.p90_queue_time)


def check_times(values, middle, high):
    known = [histogram.rounded(value) for value in values if value is not None]
    if not known:
        assert (middle, high) == (None, None)
        return
    assert (
        sum(value <= middle for value in known) * 2
        >= len(known)
        <= sum(value >= middle for value in known) * 2
    )
    assert high in known
    assert sum(value <= high for value in known) * 10 >= len(known) * 9
    assert sum(value < high for value in known) * 10 < len(known) * 9


def test_the_example_of_the_documentation_comes_out_as_written():
    """Rows of docs/statistics.md: `job | run | attempt | outcome | queue | execution`."""
    text = DOCS.read_text()
    table = re.findall(r"^\| `(\w+)` \| (\d+) \| (\d+) \| (\w+) \| (\S+) \| (\S+) \|$", text, re.MULTILINE)
    rows = [
        job(
            None if outcome == "running" else outcome,
            name=name,
            run=run,
            attempt=int(attempt),
            queue_time=None if queue == "–" else float(queue),
            execution_time=None if execution == "–" else float(execution),
        )
        for name, run, attempt, outcome, queue, execution in table
    ]
    found = backend_stats(rows, [dispatch("x", "never_started"), dispatch("y", "superseded")])
    said = dict(re.findall(r"^\| `(\w+)` \| [^|]+ \| (\S+) \|$", text, re.MULTILINE))
    assert {name: format(getattr(found, name), "g") for name in said} == said
    assert len(rows) == 9
    assert len(said) >= 14


SECONDS = st.lists(st.floats(0, 2e6), max_size=40)


@pytest.mark.parametrize(
    ("seconds", "counted_as"),
    [
        (0, 0), (0.4, 0), (1.6, 2), (119.4, 119), (119.6, 120), (124, 120), (126, 130), (597, 600), (614, 600), (616, 630),
        (3_590, 3_600), (3_700, 3_600), (3_800, 3_900), (43_100, 43_200), (50_000, 50_400), (2_000_000, 1_209_600),
    ],
)  # fmt: skip
def test_times_are_counted_in_steps(seconds, counted_as):
    assert histogram.rounded(seconds) == counted_as


def test_a_step_is_at_most_a_twelfth_of_what_it_stands_for():
    for low, high in zip(histogram.STEPS, histogram.STEPS[1:], strict=False):
        assert low < high
        assert high - low <= max(1, low / 12)


@given(SECONDS, SECONDS)
def test_parts_add_up_to_the_whole(some, others):
    assert histogram.pack(some) + histogram.pack(others) == histogram.pack([*others, *some])
    packed = histogram.pack(some)
    assert histogram.from_bytes(histogram.to_bytes(packed)) == packed


@given(SECONDS, st.sampled_from([60, 3_600, 10_800]))
def test_middle_nine_tenths_and_share_are_those_of_the_rounded_times(seconds, limit):
    steps = sorted(map(histogram.rounded, seconds))
    middle, high = histogram.summary(histogram.pack(seconds))
    over = histogram.share_over(histogram.pack(seconds), limit)
    if not steps:
        assert (middle, high, over) == (None, None, None)
        return
    assert middle == statistics.median(steps)
    assert high == min(step for step in steps if sum(one <= step for one in steps) * 10 >= len(steps) * 9)
    assert over == pytest.approx(sum(step > limit for step in steps) / len(steps))
