"""What counts when a backend is held against upstream, test by test."""

from __future__ import annotations

from bot.evidence.tests import comparing


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
