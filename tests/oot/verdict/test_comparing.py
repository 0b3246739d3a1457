"""Classification of failures: every combination of runs elsewhere."""

import pytest

from bot.oot.verdict.comparison import Compared, PastRun, compare_elsewhere, find_flaky
from bot.oot.verdict.view import History

NEW, KNOWN, FLAKY, NONE = History.NEW, History.KNOWN, History.FLAKY, History.NO_BASELINE


def past(conclusion="failure", *tests, at=0, pull=None, url=None):
    failed = frozenset((None, name) for name in tests) if tests else None
    return PastRun(
        conclusion=conclusion, tests=failed, at=at, url=url or f"https://ci.example/{at}", pull=pull
    )


def compare(failed, *, same_head, base, others):
    return find_flaky(same_head) or compare_elsewhere(failed, base=base, others=others)


def classified(failed, *, same_head=(), base=(), others=()):
    found = compare(failed, same_head=same_head, base=base, others=others)
    return found.history


def test_a_head_that_also_passed_is_flaky_whatever_else_is_known():
    passed = past("success", at=5)
    found = compare(past(), same_head=[past("failure"), passed], base=[past(at=9)], others=[past(pull=2)])
    assert found == Compared(history=FLAKY, url=passed.url)


@pytest.mark.parametrize(
    ("failed", "base", "expected"),
    [
        (past(), [], NONE),
        (past(), [past("success")], NEW),
        (past(), [past("failure")], KNOWN),
        (past(), [past("timed_out")], KNOWN),
        (past(), [past("cancelled")], NONE),
        (past(), [past("cancelled"), past("success")], NEW),
        (past(), [past("skipped"), past("failure")], KNOWN),
        (past(), [past("success", at=2), past("failure", at=1)], NEW),
        (past(), [past("failure", at=2), past("success", at=1)], KNOWN),
        (past("failure", "a"), [past("failure", "a")], KNOWN),
        (past("failure", "a"), [past("failure", "a", "b")], KNOWN),
        (past("failure", "a", "b"), [past("failure", "a")], NEW),
        (past("failure", "c"), [past("failure", "a", "b")], NEW),
        (past("failure", "a"), [past("failure")], KNOWN),
        (past("failure"), [past("failure", "a")], KNOWN),
    ],
)
def test_the_newest_run_on_the_base_decides(failed, base, expected):
    assert classified(failed, base=base) is expected


@pytest.mark.parametrize(
    ("failed", "others", "expected"),
    [
        (past(), [past(pull=2)], NONE),
        (past(), [past(pull=2), past(pull=2)], NONE),
        (past(), [past(pull=2), past(pull=3)], KNOWN),
        (past(), [past(pull=2), past("success", pull=3), past(pull=4)], NONE),
        (past(), [past("success", pull=2), past(pull=2), past(pull=3)], NONE),
        (past("failure", "a"), [past("failure", "a", pull=2)], KNOWN),
        (past("failure", "a"), [past("failure", "b", pull=2)], NONE),
        (past("failure", "a"), [past("failure", pull=2), past("failure", pull=3)], NONE),
        (past("failure", "a"), [past("success", pull=2)], NONE),
    ],
)
def test_without_a_base_other_pull_requests_tell(failed, others, expected):
    assert classified(failed, others=others) is expected


def test_other_pull_requests_count_only_since_the_base_passed():
    base = [past("success", at=10)]
    before, since = past("failure", "a", at=9, pull=2), past("failure", "a", at=11, pull=2)
    assert classified(past("failure", "a", at=20), base=base, others=[before]) is NEW
    found = compare(past("failure", "a", at=20), same_head=[], base=base, others=[since, before])
    assert found == Compared(history=KNOWN, url=since.url, elsewhere=True)


def test_the_evidence_is_the_run_that_shows_it():
    passed, failed = past("success", at=3), past("failure", at=4)
    assert compare(past(), same_head=[], base=[passed], others=[]).url == passed.url
    assert compare(past(), same_head=[], base=[failed], others=[]).url == failed.url
    assert compare(past("failure", "a"), same_head=[], base=[past("failure", "b")], others=[]).url is None
