"""Rules of tests, without a bot: verdicts, upstream beside a backend, durations, jobs that ran little."""

from __future__ import annotations

import doctest
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.evidence.tests import comparing, failing
from bot.evidence.tests.verdict import Baseline, Evidence, OtherFailure, TrustedRun, Verdict, judge
from bot.pages.tests.history import slower

HOUR = 3600 * 1000
NOW = 1_795_348_800_000
P, F, N = Baseline.PASSED, Baseline.FAILED, Baseline.NOT_RUN
outcomes = st.lists(st.sampled_from([P, F, N]), max_size=5)


def runs(*outcomes, age=HOUR):
    """Trusted runs, the newest first."""
    return [TrustedRun(f"sha{number}", NOW - age - number * HOUR, one) for number, one in enumerate(outcomes)]


def at_base(outcome):
    return runs(outcome)[0]


def elsewhere(*heads, age=HOUR):
    return [OtherFailure(head, NOW - age) for head in heads]


@pytest.mark.parametrize(
    ("evidence", "verdict"),
    [
        (Evidence(passed_on_head=True, merge_base=at_base(F), disabled=True), "flaky"),
        (Evidence(merge_base=at_base(F), disabled=True), "known"),
        (Evidence(merge_base=at_base(P), before=runs(F, F, F), ever_trusted=True), "new"),
        (Evidence(before=runs(F, P, F), ever_trusted=True), "known"),
        (Evidence(before=runs(F, P), ever_trusted=True), "new"),
        (Evidence(before=runs(P, P, F, F, F), ever_trusted=True), "new"),
        (Evidence(before=runs(F, N, N), ever_trusted=True), "no_baseline"),
        (Evidence(before=runs(F, F, age=7 * 24 * HOUR + HOUR), ever_trusted=True), "no_baseline"),
        (Evidence(merge_base=at_base(P), disabled=True), "disabled"),
        (Evidence(merge_base=at_base(P), flaky_state=True), "likely_flaky"),
        (Evidence(merge_base=at_base(P), elsewhere=elsewhere("a", "b")), "likely_flaky"),
        (Evidence(merge_base=at_base(P), elsewhere=elsewhere("a", "a")), "new"),
        (Evidence(merge_base=at_base(P), elsewhere=elsewhere("a", "b", age=73 * HOUR)), "new"),
        (Evidence(merge_base=at_base(N)), "new_test"),
        (Evidence(merge_base=at_base(N), ever_trusted=True), "no_baseline"),
        (Evidence(), "no_baseline"),
    ],
)
def test_the_first_rule_that_applies_decides(evidence, verdict):
    assert judge(evidence, failed_at=NOW).verdict == verdict


def test_a_known_failure_names_the_commits_that_prove_it():
    assert judge(Evidence(before=runs(F, P, F)), failed_at=NOW).commits == ("sha0", "sha2")


@pytest.mark.parametrize(
    ("evidence", "yours"),
    [
        (Evidence(merge_base=at_base(P)), True),
        (Evidence(merge_base=at_base(N)), True),
        (Evidence(merge_base=at_base(F)), False),
        (Evidence(), None),
    ],
)
def test_only_a_comparison_says_whose_it_is(evidence, yours):
    assert judge(evidence, failed_at=NOW).is_yours is yours


@given(before=outcomes, base=st.none() | st.sampled_from([P, F, N]), ever=st.booleans())
def test_without_a_failure_elsewhere_nothing_is_excused(before, base, ever):
    evidence = Evidence(
        merge_base=base and at_base(base),
        before=runs(*[one for one in before if one is not F]),
        ever_trusted=ever,
    )
    excused = {Verdict.FLAKY, Verdict.KNOWN, Verdict.DISABLED, Verdict.LIKELY_FLAKY}
    assert base is F or judge(evidence, failed_at=NOW).verdict not in excused


@given(before=st.permutations(runs(F, P, F, P, N)))
def test_the_order_of_rows_does_not_matter(before):
    evidence = Evidence(before=before, ever_trusted=True)
    assert judge(evidence, failed_at=NOW) == judge(
        replace(evidence, before=runs(F, P, F, P, N)), failed_at=NOW
    )


def compared(upstream, backend, *, names=None, theirs=None):
    return comparing.compare_backend(
        upstream, backend, names=names or {1: 10, 2: 20}, backend_names=theirs or {5: 10, 6: 20}, files={1: "a.py", 2: "b.py"}
    )  # fmt: skip


def test_what_upstream_skips_or_fails_says_nothing():
    found = compared(
        comparing.SideTests(known={1, 2}, failed={1}, skipped={2}),
        comparing.SideTests(known={5, 6}, failed={5}),
    )
    assert (found.whole.tests, found.whole.conformance, found.files) == (0, None, {})


def test_a_pass_on_any_job_is_a_pass():
    found = compared(
        comparing.SideTests(known={1}), comparing.SideTests(known={5, 7}, failed={5}), theirs={5: 10, 7: 10}
    )
    assert (found.whole.passed, found.whole.failed, found.whole.conformance) == (1, 0, 1.0)


def test_what_the_backend_does_not_run_is_missing_by_file():
    found = compared(comparing.SideTests(known={1, 2}), comparing.SideTests(known={5}))
    assert (found.whole.tests, found.whole.passed, found.whole.missing, found.whole.conformance) == (
        2,
        1,
        1,
        0.5,
    )
    assert {file: one.missing for file, one in found.files.items()} == {"a.py": 0, "b.py": 1}


def test_tests_of_the_backend_alone_are_counted_apart():
    assert (
        compared(comparing.SideTests(known={1}), comparing.SideTests(known={5, 6}), names={1: 10}).only_theirs
        == 1
    )


@pytest.mark.parametrize(
    ("now", "before", "found"),
    [
        ([10_000] * 20, [4_000] * 20, (4_000, 10_000)),
        ([10_000] * 19, [4_000] * 20, None),  # too few
        ([6_000] * 20, [4_000] * 20, None),  # by less than five seconds
        ([9_000] * 20, [4_000] * 20, (4_000, 9_000)),
        ([14_000] * 20, [10_000] * 20, None),  # by less than half
        ([4_000] * 12 + [60_000] * 8, [4_000] * 20, None),  # now and then
        ([4_000] * 20, [10_000] * 20, None),
    ],
)
def test_slower_is_half_as_long_again_and_five_seconds(now, before, found):
    assert slower([*now, *before]) == found


@pytest.mark.parametrize(
    ("ran", "usual", "found"),
    [
        (120, [8400, 8398, 8401, 8396, 8400], "ran 120 of 8,400 tests"),
        (4199, [8400] * 5, "ran 4,199 of 8,400 tests"),
        (4200, [8400] * 5, None),
        (0, [], None),
        (0, [8400, 8400], None),  # too few runs to say what is usual
        (0, [0, 0, 0], None),
        (100, [100, 100, 100, 100, 100, 9000, 9000, 9000], None),  # only the newest five count
    ],
)
def test_which_jobs_ran_few_tests(ran, usual, found):
    little = failing.compare_with_usual(ran, usual)
    assert (str(little) if little else None) == found
    assert doctest.testmod(failing).failed == 0
