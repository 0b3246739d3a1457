"""The verdict of the gate on given backends; tests/flows/test_gate.py has the whole flow."""

import pytest

from bot.oot.publish.check_text import gate_check
from bot.oot.verdict.gate import judge_gate
from bot.oot.verdict.verdict import State
from bot.oot.verdict.view import Backend


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
