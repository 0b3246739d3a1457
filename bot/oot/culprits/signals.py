"""Signals: one thing that is good or bad on each commit of a branch."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bot.oot.culprits.tables import BisectRow, Signal

SEPARATOR = "::"
NAME_MOST = 500  # characters of a job's or a test's name
NEAREST = 3  # names that are suggested
BACKENDS = "backends"  # how names of backends' columns begin in the grid


class TestName(NamedTuple):
    """A test as people name it; what is empty may be anything."""

    file: str
    suite: str
    name: str


def signal_of(search: BisectRow) -> Signal:
    """Return the signal of a search."""
    return {
        "repository_id": search["repository_id"],
        "branch": search["branch"],
        "backend": search["backend"],
        "job": search["job"],
        "test": search["test"],
        "signature": search["signature"],
    }


def column_name(backend_label: str, job: str) -> str:
    """Return the name of a signal's column in the grid; the label is empty for upstream's own jobs."""
    return f"{BACKENDS} / {backend_label} / {job}" if backend_label else job


def split_test(written: str) -> TestName:
    """Return a test's name taken apart.

    >>> split_test("test/test_x.py::TestX::test_a"), split_test("TestX.test_a"), split_test("test_a")
    (TestName(file='test/test_x.py', suite='TestX', name='test_a'), TestName(file='', suite='TestX', name='test_a'), \
TestName(file='', suite='', name='test_a'))
    """
    parts = written.split(SEPARATOR, 2)
    if len(parts) == 1 and "." in written and " " not in written and not written.endswith("."):
        suite, _, name = written.rpartition(".")
        return TestName("", suite, name)
    return TestName(*["", "", *parts][-3:])


def is_test(wanted: TestName, *, file: str, suite: str, name: str) -> bool:
    """Whether a reported test is the one that is meant; suites may be told with their module."""
    if wanted.name != name or (wanted.file and wanted.file != file):
        return False
    return not wanted.suite or suite == wanted.suite or suite.endswith(f".{wanted.suite}")


def nearest_names(word: str, known: Iterable[str]) -> list[str]:
    """Return the known names most like a word."""
    by_folded = {name.casefold(): name for name in known}
    close = get_close_matches(word.casefold()[:NAME_MOST], by_folded, n=NEAREST, cutoff=0.3)
    return [by_folded[one] for one in close] or sorted(by_folded.values())[:NEAREST]
