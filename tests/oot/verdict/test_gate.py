"""Does a commit's gate pass? One line a case: the level and state of each backend, and what the gate says."""

from itertools import permutations

import pytest

from bot.oot.verdict.gate import judge_gate
from bot.oot.verdict.verdict import State
from bot.oot.verdict.view import Backend

CASES = """
                                            -> passed: no blocking backend
a=L4:success                                -> passed: 1 blocking backend passed
a=L4:success b=L4:success                   -> passed: 2 blocking backends passed
a=L3:failure b=L2:running c=L1:queued       -> passed: no blocking backend
a=L4:success b=L3:never_started             -> passed: 1 blocking backend passed
a=L4:success b=L4:failure                   -> failed: b failed
a=L4:running b=L4:failure                   -> failed: b failed
a=L4:held b=L4:timed_out                    -> failed: b timed out
a=L4:failure b=L4:cancelled                 -> failed: a failed, b cancelled
a=L4:success b=L4:queued                    -> waiting: waiting for b
a=L4:running b=L4:confirming                -> waiting: waiting for a, b
a=L4:held                                   -> waiting: needs oot/ok-to-test
a=L4:held b=L4:running                      -> waiting: waiting for b; needs oot/ok-to-test
a=L4:success b=L4:failure/ignored           -> passed: 1 blocking backend passed, 1 ignored
a=L4:running/ignored b=L4:failure/ignored   -> passed: 2 blocking backends ignored
a=L4:running b=L4:failure/ignored           -> waiting: waiting for a
a=L0:success                                -> waiting: waiting for a
a=L5:success b=L4:success                   -> waiting: waiting for a
a=L0:failure                                -> failed: a failed
a=L0:failure/ignored                        -> passed: 1 blocking backend ignored
unknown=L4:success                          -> waiting: waiting: no allowlist
unknown=L4:failure                          -> waiting: waiting: no allowlist
"""
LINES = [line for line in CASES.splitlines() if line]


def drawn(word):
    """The backend that a word of a line stands for."""
    name, _, verdict = word.partition("=")
    level, _, state = verdict.removeprefix("L").partition(":")
    state, _, ignored = state.partition("/")
    given = {"repo": f"org/{name}", "device": name, "ignored_by": "alice" if ignored else None}
    return Backend(level=int(level), state=State(state), **given)


@pytest.mark.parametrize("line", LINES, ids=[" ".join(line.split()) for line in LINES])
def test_the_gate_says_what_is_drawn_whatever_the_order_of_its_backends(line):
    words, _, expected = line.partition("-> ")
    unknown = "no allowlist" if "unknown=" in words else ""
    orders = permutations(drawn(word) for word in words.split())
    gates = [judge_gate(backends, unknown=unknown) for backends in orders]
    assert {f"{made.state}: {made.title}" for made in gates} == {expected}


@pytest.mark.parametrize("state", list(State))
@pytest.mark.parametrize("level", [0, 4, 5])
def test_only_a_success_at_a_known_level_lets_a_commit_pass(state, level):
    made = judge_gate([drawn("a=L4:success"), drawn(f"b=L{level}:{state}")])
    assert (made.conclusion == "success") == (state is State.SUCCESS and level == 4)
    assert (made.conclusion == "failure") == (state.finished and state is not State.SUCCESS)
