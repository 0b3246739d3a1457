"""What differs between two sides, test by test."""

from __future__ import annotations

import pytest

from bot.evidence.tests.comparing import Change, add_jobs, compare_sides
from bot.evidence.tests.parse import block
from bot.evidence.tests.parse.block import NO_TIME, Code, code_of

P, F, E, S, X = Code.PASSED, Code.FAILED, Code.ERROR, Code.SKIPPED, Code.XFAILED


def side(jobs):
    return add_jobs({}, jobs)


def job(family="ci / test", **tests):
    """A job in which test t1 ended as `t1` says, after one attempt."""
    cases = [(int(name[1:]), code_of(outcome, 1), NO_TIME) for name, outcome in tests.items()]
    return family, block.decode(block.encode(cases))


def changes(base, head):
    found = compare_sides(side(base), side(head))
    assert {change: len(tests) for change, tests in found.changed.items()} == found.counts
    return {change.value: [one.test_id for one in tests] for change, tests in found.changed.items() if tests}


@pytest.mark.parametrize(
    ("base", "head", "change"),
    [
        (P, F, "newly_failing"),
        (P, E, "newly_failing"),
        (S, F, "newly_failing"),
        (F, E, "still_failing"),
        (F, P, "fixed"),
        (F, X, "fixed"),
        (F, S, None),  # skipping is no fix
        (P, S, "newly_skipped"),
        (X, S, "newly_skipped"),
        (P, P, None),
        (S, S, None),
        (S, P, None),
    ],
)
def test_how_a_test_changed(base, head, change):
    assert changes([job(t1=base)], [job(t1=head)]) == ({change: [1]} if change else {})


def test_tests_that_are_only_on_one_side_are_new_or_gone():
    assert changes([job(t1=P, t2=P)], [job(t1=P, t3=F)]) == {"new": [3], "gone": [2]}


def test_a_re_run_that_passes_takes_a_failure_back_in_any_order():
    failed, passed = job(t1=F, t2=P), job(t1=P)
    for head in ([failed, passed], [passed, failed]):
        assert changes([job(t1=P, t2=P)], head) == {}
    assert changes([job(t1=P)], [job(t1=F), job(t1=S)]) == {"newly_failing": [1]}


def test_shards_of_a_family_are_one():
    assert changes([job(t1=P), job(t2=P)], [job(t2=P), job(t1=F)]) == {"newly_failing": [1]}


def test_a_family_that_did_not_run_says_nothing():
    found = compare_sides(
        side([job("linux", t1=P), job("mac", t1=P)]), side([job("linux", t1=P), job("win", t1=F)])
    )
    assert (found.only_head, found.only_base, found.families) == (["win"], ["mac"], 1)
    assert sum(found.counts.values()) == 0


def test_of_very_many_changes_all_are_counted_and_some_named():
    base, head = [job(**{f"t{n}": P for n in range(1, 50)})], [job(**{f"t{n}": F for n in range(1, 50)})]
    found = compare_sides(side(base), side(head), most=10)
    assert found.counts[Change.NEWLY_FAILING] == 49
    assert [one.test_id for one in found.changed[Change.NEWLY_FAILING]] == list(range(1, 11))
