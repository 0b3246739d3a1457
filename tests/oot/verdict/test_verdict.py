"""What is the verdict on a backend, and does a commit's gate pass? One line a case; drawings.py explains the signs."""

from dataclasses import replace
from itertools import permutations

import pytest

from bot.oot.results.tables import DispatchRow
from bot.oot.verdict.gate import judge_gate
from bot.oot.verdict.verdict import State, newest_by_backend
from bot.oot.verdict.view import Backend
from tests.harness import START
from tests.oot.verdict.drawings import REPO, draw, judged, row

CASES = """
# the dispatch alone, before any report
L4 pending                | -> queued, gate waiting
L4 sent                   | -> queued, gate waiting
L4 held                   | -> held, gate waiting
L4 superseded             | -> cancelled, gate failed
L4 cancelled              | -> cancelled, gate failed
L4 failed                 | -> dispatch_failed, gate failed
L4 not_installed          | -> not_installed, gate failed
L4 never_started          | -> never_started, gate failed
L4 not_run                | -> never_started, gate failed
L4 unheard_of             | -> queued, gate waiting
L4 none                   | -> queued, gate waiting
L3 sent                   | -> queued, gate passed
L3 held                   | -> held, gate passed
L3 superseded             | -> cancelled, gate passed
L3 never_started          | -> never_started, gate passed
L3 not_run may_rest       | -> not_run, gate passed
L2 sent                   | -> queued, gate passed
L2 not_installed          | -> not_installed, gate passed
L1 sent                   | -> queued, gate passed
L1 failed                 | -> dispatch_failed, gate passed

# one job at L4: only with GitHub's word it is green
L4 sent | build:running                    -> running, gate waiting
L4 sent | build:success                    -> confirming, gate waiting
L4 sent | build:success github:running     -> confirming, gate waiting
L4 sent | build:success github:success     -> success, gate passed
L4 sent | build:running github:success     -> running, gate waiting
L4 sent | build:success github:failure     -> failure, gate failed
L4 sent | build:success github:cancelled   -> cancelled, gate failed
L4 sent | build:success github:timed_out   -> failure, gate failed
L4 sent | build:success github:skipped     -> failure, gate failed
L4 sent | build:success github:neutral     -> failure, gate failed
L4 sent | build:success github:missing     -> failure, gate failed
L4 sent | build:success github:unreadable  -> timed_out, gate failed
L4 sent | build:success github:unconfirmed -> timed_out, gate failed
L4 sent | build:running github:missing     -> failure, gate failed
L4 sent | build:success github:success/push              -> failure, gate failed
L4 sent | build:success github:running/pull_request      -> failure, gate failed
L4 sent | build:success github:success/workflow_dispatch -> success, gate passed
L4 sent | build:success github:success/none              -> failure, gate failed
L4 sent | build:success github:running/none              -> confirming, gate waiting
L4 sent | github:success                                 -> queued, gate waiting
L4 sent | build:success 2/github:success                 -> confirming, gate waiting
L4 sent | build:success github.2:success                 -> confirming, gate waiting

# how a job ended
L4 sent | build:failure         github:success -> failure, gate failed
L4 sent | build:timed_out       github:success -> timed_out, gate failed
L4 sent | build:startup_failure github:success -> failure, gate failed
L4 sent | build:action_required github:success -> failure, gate failed
L4 sent | build:stale           github:success -> failure, gate failed
L4 sent | build:cancelled       github:success -> cancelled, gate failed
L4 sent | build:skipped         github:success -> neutral, gate failed
L4 sent | build:neutral         github:success -> neutral, gate failed
L4 sent | build:silent          github:success -> neutral, gate failed
L4 sent | build:unheard_of      github:success -> cancelled, gate failed
L3 sent | build:success    -> success, gate passed
L3 sent | build:failure    -> failure, gate passed
L3 sent | build:running    -> running, gate passed
L3 sent | build:neutral    -> neutral, gate passed
L3 sent | build:silent     -> neutral, gate passed
L3 sent | build:unheard_of -> cancelled, gate passed
L2 sent | build:success    -> success, gate passed
L2 sent | build:timed_out  -> timed_out, gate passed
L1 sent | build:success    -> success, gate passed

# several jobs of a run
L4 sent | build:success test:success   github:success -> success, gate passed
L4 sent | build:success test:running   github:success -> running, gate waiting
L4 sent | build:success test:skipped   github:success -> success, gate passed
L4 sent | build:success test:neutral   github:success -> success, gate passed
L4 sent | build:success test:silent    github:success -> neutral, gate failed
L4 sent | build:success test:cancelled github:success -> cancelled, gate failed
L4 sent | build:success test:failure   github:success -> failure, gate failed
L4 sent | build:running test:failure                  -> failure, gate failed
L4 sent | build:running test:cancelled                -> running, gate waiting
L4 sent | build:failure test:timed_out                -> failure, gate failed
L4 sent | build:skipped test:neutral   github:success -> neutral, gate failed

# several runs: each has to pass
L4 sent | build:success 2/build:success github:success 2/github:success      -> success, gate passed
L4 sent | build:success 2/build:success github:success                       -> confirming, gate waiting
L4 sent | build:success 2/build:success github:success 2/github:running      -> confirming, gate waiting
L4 sent | build:success 2/build:success github:success 2/github:failure      -> failure, gate failed
L4 sent | build:success 2/build:success github:cancelled 2/github:failure    -> failure, gate failed
L4 sent | build:success 2/build:success github:unreadable 2/github:missing   -> failure, gate failed
L4 sent | build:success 2/build:success github:cancelled 2/github:unreadable -> timed_out, gate failed
L4 sent | build:success 2/build:success github:failure 2/github:unconfirmed  -> failure, gate failed
L4 sent | build:success 2/build:success github:cancelled 2/github:cancelled  -> cancelled, gate failed

# runs that the same event started and that have not reported: each has to end well
L4 sent | build:success github:success 2/announced:running                    -> confirming, gate waiting
L4 sent | build:success github:success 2/announced:success                    -> success, gate passed
L4 sent | build:success github:success 2/announced:skipped                    -> success, gate passed
L4 sent | build:success github:success 2/announced:cancelled                  -> cancelled, gate failed
L4 sent | build:success github:success 2/announced:failure 3/announced:running -> failure, gate failed
L4 sent | build:success 2/announced:success                                   -> confirming, gate waiting
L4 sent | build:failure github:failure 2/announced:running                    -> failure, gate failed
L4 sent unconfirmed quiet | build:success 2/announced:running                 -> confirming, gate waiting
L3 sent | build:success 2/announced:running                                   -> success, gate passed

# run again: until the new attempt has an outcome, nothing of the old one counts as final
L4 sent | build:failure rerun.2:asked                                -> queued, gate waiting
L4 sent | build:failure rerun.2:sent                                 -> queued, gate waiting
L4 sent | build:failure rerun.2:impossible                           -> failure, gate failed
L4 sent | build:failure rerun.2:never_started                        -> never_started, gate failed
L4 sent | build:failure rerun.2:sent github.2:running                -> queued, gate waiting
L4 sent | build:failure rerun.2:sent github.2:failure                -> failure, gate failed
L4 sent | build:failure rerun.2:sent github.2:cancelled              -> cancelled, gate failed
L4 sent | build:failure rerun.2:sent github.2:success                -> queued, gate waiting
L4 sent | build:success github:success rerun.2:asked                 -> queued, gate waiting
L4 sent | build:success github:success rerun.2:impossible            -> success, gate passed
L4 sent | build:failure 2/build:success 2/github:success rerun.2:asked -> queued, gate waiting
L4 sent | build:success 2/build:success rerun.2:sent 2/rerun.2:sent github.2:cancelled 2/github.2:failure -> failure, gate failed
L4 sent | build:failure rerun.2:begun build.2:running                -> running, gate waiting
L4 sent | build:failure rerun.2:begun build.2:success                -> confirming, gate waiting
L4 sent | build:failure rerun.2:begun build.2:success github:success -> confirming, gate waiting
L4 sent | build:failure rerun.2:begun build.2:success github.2:success -> success, gate passed
L4 sent | build:failure rerun.2:begun build.2:failure github.2:failure -> failure, gate failed
L4 sent | build:success github:success build.2:failure               -> failure, gate failed
L4 sent | build:success github:success build.2:success               -> confirming, gate waiting
L3 sent | build:failure rerun.2:asked                                -> queued, gate passed
L3 sent | build:failure rerun.2:never_started                        -> never_started, gate passed
L3 sent | build:failure build.2:success                              -> success, gate passed

# a failed job that the new attempt does not report: GitHub's conclusion tells whether it passed
L4 sent | build:failure test.2:success                     -> running, gate waiting
L4 sent | build:failure test.2:success github.2:running    -> running, gate waiting
L4 sent | build:failure test.2:success github.2:success    -> success, gate passed
L4 sent | build:failure test.2:success github.2:failure    -> failure, gate failed
L4 sent | build:failure test.2:success github.2:missing    -> failure, gate failed
L4 sent | build:failure test.2:success github.2:unreadable -> failure, gate failed
L4 sent | build:failure test.2:success github:success      -> running, gate waiting
L4 sent | build:cancelled test.2:success                   -> running, gate waiting
L4 sent | build:cancelled test.2:success github.2:success  -> success, gate passed
L4 sent | build:running test.2:success github.2:success    -> running, gate waiting
L4 sent | build:success test:failure test.2:success github.2:success -> success, gate passed
L3 sent | build:failure test.2:success                     -> running, gate passed
L3 sent unconfirmed       | build:failure test.2:success   -> running, gate passed
L3 sent unconfirmed quiet | build:failure test.2:success   -> failure, gate passed

# a backend whose green GitHub cannot confirm: a minute without news
L4 sent unconfirmed       | build:success               -> confirming, gate waiting
L4 sent unconfirmed quiet | build:success               -> success, gate passed
L4 sent unconfirmed quiet | build:running               -> running, gate waiting
L4 sent unconfirmed quiet | build:success test:running  -> running, gate waiting
L4 sent unconfirmed quiet | build:failure               -> failure, gate failed
L4 sent unconfirmed quiet | build:neutral               -> neutral, gate failed
L4 sent unconfirmed quiet | build:failure test.2:success -> failure, gate failed
L4 sent unconfirmed quiet | build:failure build.2:success -> success, gate passed
L4 sent unconfirmed quiet | build:success rerun.2:asked -> queued, gate waiting
L4 sent unconfirmed quiet |                             -> queued, gate waiting
L4 sent quiet             | build:success               -> confirming, gate waiting

# results after the dispatch was given up count all the same
L4 never_started | build:success github:success -> success, gate passed
L4 never_started | build:success                -> confirming, gate waiting
L4 not_run       | build:failure                -> failure, gate failed
L4 cancelled     | build:success github:success -> success, gate passed
L4 superseded    | build:running                -> running, gate waiting
L4 failed        | build:success github:success -> success, gate passed
L3 not_run       | build:success                -> success, gate passed

# listed otherwise now than when it was dispatched
L3>L4 sent          | build:success                             -> confirming, gate waiting
L3>L4 sent          | build:success github:success              -> success, gate passed
L3>L4 not_run       |                                           -> never_started, gate failed
L2>L4 sent          | build:success!static github:success       -> queued, gate waiting
L2>L4 sent          | build:success!no_token github:success     -> queued, gate waiting
L2>L4 sent static_allowed | build:success!static github:success -> success, gate passed
L2>L4 sent token_optional | build:success!no_token github:success -> success, gate passed
L2>L4 sent          | build:failure!static test:success github:success          -> success, gate passed
L2>L4 sent          | build:failure!static test:success github:failure          -> failure, gate failed
L2>L4 sent          | build:success build.2:failure!static github:success       -> queued, gate waiting
L2>L4 sent          | build:success build.2:success!static github:success       -> queued, gate waiting
L2>L4 sent          | build:success!static build.2:success github.2:success     -> success, gate passed
L2>L4 sent          | build:success 2/build:failure!static github:success       -> success, gate passed
L4>L3 sent          | build:success                             -> confirming, gate passed
L4>L3 sent          | build:failure                             -> failure, gate passed
L4 sent unlisted    | build:success                             -> confirming, gate passed
L4 sent unlisted    | build:success!static github:success       -> success, gate passed
L4 sent pushes_only | build:success                             -> confirming, gate waiting
L3 sent pushes_only | build:success                             -> success, gate passed

# a level there is none of: it never lets a commit pass
L0>L3 sent       | build:success -> success, gate waiting
L0>L3 sent       | build:failure -> failure, gate failed
L0 sent unlisted | build:success -> success, gate waiting
L5>L3 sent       | build:success -> confirming, gate passed
L5>L4 sent       | build:success -> confirming, gate waiting
L0>L4 sent       | build:success github:success -> success, gate passed

# ignored on this head; and no allowlist that could be read
L4 sent ignored      | build:failure                -> failure, gate passed
L4 sent ignored      | build:running                -> running, gate passed
L4 none ignored      |                              -> queued, gate passed
L4 sent no_allowlist | build:success github:success -> success, gate waiting
L4 none no_allowlist |                              -> nothing, gate waiting
L4 sent no_allowlist | build:failure                -> failure, gate waiting
"""

LINES = [line for line in CASES.splitlines() if line and not line.startswith("#")]


@pytest.mark.parametrize("line", LINES, ids=[" ".join(line.split()) for line in LINES])
def test_the_verdict_is_the_one_drawn_in_every_order_of_arrival(line):
    drawn, expected = line.split("-> ")
    drawing = draw(drawn)
    orders = (replace(drawing, facts=facts) for facts in permutations(drawing.facts))
    assert {judged(one) for one in orders} == {expected.strip()}


DISPATCHES = """
sent                       -> 1
sent sent                  -> 2
sent superseded            -> 1
superseded sent            -> 2
superseded superseded      -> 2
never_started pending      -> 2
sent cancelled superseded  -> 2
failed superseded held     -> 3
"""
CHOICES = [line for line in DISPATCHES.splitlines() if line]


@pytest.mark.parametrize("line", CHOICES, ids=[" ".join(line.split()) for line in CHOICES])
def test_the_newest_dispatch_that_was_not_dropped_counts_in_every_order(line):
    states, expected = line.split("-> ")
    dispatches = [
        row(DispatchRow, id=f"d{at}", backend_key=REPO, state=state, created_at=START + at)
        for at, state in enumerate(states.split(), 1)
    ]
    chosen = {newest_by_backend(order)[REPO]["id"] for order in permutations(dispatches)}
    assert chosen == {f"d{expected}"}


GATES = """
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
GATE_LINES = [line for line in GATES.splitlines() if line]


def drawn(word):
    """The backend that a word of a line stands for."""
    name, _, verdict = word.partition("=")
    level, _, state = verdict.removeprefix("L").partition(":")
    state, _, ignored = state.partition("/")
    given = {"repo": f"org/{name}", "device": name, "ignored_by": "alice" if ignored else None}
    return Backend(level=int(level), state=State(state), **given)


@pytest.mark.parametrize("line", GATE_LINES, ids=[" ".join(line.split()) for line in GATE_LINES])
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
