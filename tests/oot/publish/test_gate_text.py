"""The text of the gate."""

import pytest

from bot.oot.verdict.verdict import State
from tests.oot.publish.checked import FAILURE, HELD, RUNNING, gate
from tests.oot.publish.heads import START, backend

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
