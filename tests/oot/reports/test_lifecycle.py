"""How does a job get from its first report to its last, whatever order they come in?"""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.oot.reports import lifecycle
from bot.oot.reports.report import parse_report
from bot.oot.results.jobs import BLANK, CHANGING
from bot.oot.results.tables import JobChange

SENT = 1_000_000


def report(status="completed", conclusion="success", attempt=1, **workflow):
    said = {"status": status, "name": "CI", "job_name": "build", "run_id": "9", "run_attempt": attempt}
    if status == "completed":
        said["conclusion"] = conclusion
    return parse_report(json.dumps({"delivery_id": "d", "workflow": said | workflow}).encode())


BEGUN = report("in_progress")


class Life:
    """One job, as it is recorded; what contradicts it is kept beside it."""

    def __init__(self, dispatched_at=SENT):
        self.row = None
        self.refused = []
        self.dispatched_at = dispatched_at
        self.now = SENT

    def receive(self, event, after=0):
        self.now += after * 1000
        if event == "sweep":
            if self.row and self.row["status"] == "in_progress":
                self.row |= lifecycle.finish_unreported(self.row, now=self.now)
            return self
        try:
            change = lifecycle.decide_change(self.row, event, now=self.now, dispatched_at=self.dispatched_at)
        except lifecycle.Conflict as error:
            self.refused.append(str(error))
            return self
        if change is not None:
            self.row = (self.row or BLANK) | change
        return self


def test_a_job_that_begins_and_ends_is_measured_on_our_clock():
    row = Life().receive(BEGUN, after=30).receive(report(), after=90).row
    assert (row["status"], row["conclusion"]) == ("completed", "success")
    assert (row["queue_time"], row["execution_time"]) == (30, 90)
    assert (row["started_at"], row["completed_at"]) == (SENT + 30_000, SENT + 120_000)
    assert row["flags"] == {}


def test_a_job_that_only_ends_is_taken_and_says_that_its_beginning_is_unknown():
    row = Life().receive(report(), after=90).row
    assert row["started_at"] == row["completed_at"] == SENT + 90_000
    assert (row["queue_time"], row["execution_time"]) == (None, None)
    assert row["flags"] == {"no_start": True}


def test_a_second_attempt_did_not_queue_for_the_dispatch():
    assert Life().receive(report("in_progress", attempt=2), after=500).row["queue_time"] is None


def test_without_a_dispatch_there_is_nothing_to_measure_from():
    assert Life(dispatched_at=None).receive(BEGUN, after=5).row["queue_time"] is None


def test_the_first_conclusion_stands_and_the_other_is_refused():
    life = Life().receive(BEGUN).receive(report(), after=5)
    before = dict(life.row)
    life.receive(report(conclusion="failure"), after=5)
    assert life.row == before
    assert life.refused == ["this job has completed with success already; the first report stands"]


def test_a_beginning_after_the_end_is_refused_only_when_there_was_none():
    assert Life().receive(report()).receive(BEGUN).refused
    assert not Life().receive(BEGUN).receive(report()).receive(BEGUN).refused


def test_a_job_the_sweeper_gave_up_may_still_report_and_is_late():
    life = Life().receive(BEGUN).receive("sweep", after=3600)
    assert (life.row["conclusion"], life.row["flags"]) == ("timed_out", {"swept": True})
    life.receive(report(conclusion="failure"), after=60)
    assert (life.row["conclusion"], life.row["flags"]) == ("failure", {"late": True})
    assert life.row["execution_time"] == 3660
    life.receive(report(conclusion="success"))
    assert life.row["conclusion"] == "failure"


def test_what_a_later_report_leaves_out_is_kept():
    first = report("in_progress", url="https://ci.example/1", environment={"driver": "1"})
    row = Life().receive(first).receive(report(test_results={"passed": 3, "failed": 0})).row
    assert (row["workflow_run_url"], row["environment"]) == ("https://ci.example/1", {"driver": "1"})
    assert (row["passed_tests"], row["failed_tests"], row["total_tests"]) == (3, 0, 3)


def test_a_relay_measures_times_instead_of_ours_and_only_those_it_measured():
    values = {"queue_time": 5.0, "execution_time": 6.0, "status": "completed"}
    change = lifecycle.with_measured_times(
        None, values, {"queue_time": None, "execution_time": None}, now=SENT
    )
    assert change == {"status": "completed"}
    change = lifecycle.with_measured_times(
        None, values, {"queue_time": 1.5, "execution_time": None}, now=SENT
    )
    assert change == {"status": "completed", "queue_time": 1.5}


def test_a_repetition_fills_what_was_null_and_changes_nothing_else():
    life = Life().receive(BEGUN).receive(report(url="https://ci.example/1"), after=5)
    before = dict(life.row)
    life.receive(report(url="https://ci.example/2", test_results={"passed": 3}), after=5)
    filled = {"passed_tests": 3, "total_tests": 3, "updated_at": SENT + 10_000}
    assert life.row == before | filled
    life.receive(report("in_progress", environment={"driver": "1"}), after=5)
    assert life.row == before | filled | {"environment": {"driver": "1"}, "updated_at": SENT + 15_000}
    assert life.refused == []


EVENTS = st.sampled_from([BEGUN, report(), "sweep"])


@given(st.lists(EVENTS, max_size=8), st.permutations([BEGUN, report(), "sweep"]))
def test_any_order_and_repetition_ends_in_the_same_place(more, order):
    row = Life().receive(order[0]).receive(order[1]).receive(order[2]).row
    for event in more:
        before = dict(row)
        life = Life()
        life.row = row
        row = life.receive(event).row
        assert row == before
    assert (row["status"], row["conclusion"]) == ("completed", "success")
    assert set(row["flags"]) <= {"late", "no_start"}


@pytest.mark.parametrize("order", list(itertools.permutations(["success", "failure", "cancelled"])))
def test_of_contradicting_ends_the_first_stands_and_the_others_are_refused(order):
    life = Life()
    for conclusion in order:
        life.receive(report(conclusion=conclusion))
    assert life.row["conclusion"] == order[0]
    assert len(life.refused) == 2


LEGS = {"a": "success", "b": "failure", "c": "skipped", "d": "cancelled"}


@pytest.mark.parametrize("order", list(itertools.permutations(LEGS, 3)))
def test_legs_that_share_a_name_are_a_job_that_passes_only_if_all_have(order):
    life = Life()
    for leg in order:
        life.receive(report("in_progress", check_run_id=leg))
    for leg in (*order, *order):
        life.receive(report(conclusion=LEGS[leg], check_run_id=leg), after=5)
    unsuccessful = [leg for leg in order if leg in "bd"]
    first = unsuccessful[0] if unsuccessful else order[0]
    assert (life.row["conclusion"], life.row["check_run_id"]) == (LEGS[first], first)
    assert life.refused == []


def test_a_leg_that_begins_after_another_has_ended_is_no_contradiction():
    life = Life().receive(report(check_run_id="a")).receive(report("in_progress", check_run_id="b"))
    assert life.refused == []
    assert life.receive(report(conclusion="failure", check_run_id="b")).row["conclusion"] == "failure"


def test_whatever_a_later_report_changes_is_written():
    first = {"started_at", "received_at"}  # are of the first report alone
    assert JobChange.__annotations__.keys() - first <= set(CHANGING)
