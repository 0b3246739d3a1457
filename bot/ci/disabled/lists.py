"""The lists that CI reads, made of issues, in the form that PyTorch's CI reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bot.ci.disabled import issue_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from bot.ci.disabled.tables import DisablingRow

Tests = dict[
    str, tuple[str, str, list[str]]
]  # by test: number and address of an issue, platforms (none: all)
# by name: author, number and address of an issue, workflow, platform, configuration
Jobs = dict[str, tuple[str, str, str, str, str, str]]


def disabled_tests(issues: Iterable[DisablingRow]) -> Tests:
    """Return the disabled tests: with several issues for one, on the platforms of all; no platform means all.

    The issue named is the one with the lowest number.
    """
    found: Tests = {}
    for issue in _in_order(issues, "test", unstable=False):
        _add(found, {name: (str(issue["number"]), issue["url"] or "", on) for name, on in issue["entries"]})
    return found


def for_backend(upstream: Tests, own: Tests, device: str | None) -> Tests:
    """Return the tests that a backend may skip: upstream's that are disabled on its device, and its own."""
    found = {name: one for name, one in upstream.items() if not one[2] or (device or "").casefold() in one[2]}
    _add(found, own)
    return found


def disabled_jobs(issues: Iterable[DisablingRow]) -> Jobs:
    """Return the jobs that are skipped."""
    return _jobs(issues, unstable=False)


def unstable_jobs(issues: Iterable[DisablingRow]) -> Jobs:
    """Return the jobs that may fail."""
    return _jobs(issues, unstable=True)


LISTS: dict[str, Callable[[Iterable[DisablingRow]], dict[str, Any]]] = {
    "disabled-tests-condensed": disabled_tests,
    "disabled-jobs": disabled_jobs,
    "unstable-jobs": unstable_jobs,
}


def _jobs(issues: Iterable[DisablingRow], *, unstable: bool) -> Jobs:
    found: Jobs = {}
    for issue in _in_order(issues, "job", unstable=unstable):
        for name, _ in issue["entries"]:
            parts = issue_text.job_parts(name)
            found.setdefault(name, (issue["author"] or "", str(issue["number"]), issue["url"] or "", *parts))
    return found


def _add(found: Tests, more: Tests) -> None:
    for name, (number, url, platforms) in more.items():
        first, address, before = found.get(name, (number, url, platforms))
        found[name] = (first, address, sorted({*before, *platforms}) if before and platforms else [])


def _in_order(issues: Iterable[DisablingRow], kind: str, *, unstable: bool) -> list[DisablingRow]:
    """Return the issues of a kind that have an effect."""
    wanted = (one for one in issues if one["listed"] and (one["kind"], one["unstable"]) == (kind, unstable))
    return sorted(wanted, key=lambda one: one["number"])
