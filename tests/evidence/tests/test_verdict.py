"""The verdict on a failing test: every rule, and what missing data may not do."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.evidence.tests.verdict import Baseline, Evidence, OtherFailure, TrustedRun, Verdict, judge

HOUR = 3600 * 1000
NOW = 1_795_348_800_000
P, F, N = Baseline.PASSED, Baseline.FAILED, Baseline.NOT_RUN


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


outcomes = st.lists(st.sampled_from([P, F, N]), max_size=5)


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
