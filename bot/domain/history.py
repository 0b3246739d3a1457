"""Is a failure new with this change? One failing job against the same job elsewhere.

What is compared is how the job stood when it failed, so the answer never changes afterwards. It only ever explains a
failure; nothing here makes one green.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bot.domain.view import RED_CONCLUSIONS, History

if TYPE_CHECKING:
    from collections.abc import Sequence

ENOUGH_OTHERS = 2  # pull requests that fail alike, where nobody says which tests failed

Row = dict[str, Any]
Test = tuple[str | None, str]  # classname, name


@dataclass(frozen=True, kw_only=True)
class Past:
    """How one job ended, somewhere."""

    conclusion: str | None
    tests: frozenset[Test] | None  # those that failed; None when they were not (all) told
    at: int  # when it ended, epoch milliseconds
    url: str | None = None
    pull: int | None = None  # the pull request it ran for; None: a branch

    @property
    def red(self) -> bool:
        """Whether it failed."""
        return self.conclusion in RED_CONCLUSIONS

    def shows(self, tests: frozenset[Test]) -> bool:
        """Whether it is known that all of some tests failed in it."""
        return self.tests is not None and tests <= self.tests


@dataclass(frozen=True, kw_only=True)
class Compared:
    """What a failing job is, and the run that shows it."""

    history: History
    url: str | None = None
    elsewhere: bool = False  # shown by another pull request


def flaky(same_head: Sequence[Past]) -> Compared | None:
    """Say that a failure is flaky where the same head also passed, whatever happened elsewhere."""
    passed = next((past for past in same_head if past.conclusion == "success"), None)
    return Compared(history=History.FLAKY, url=passed.url) if passed else None


def compare_elsewhere(failed: Past, *, base: Sequence[Past], others: Sequence[Past]) -> Compared:
    """Say what a failure is by what happened on other commits before it; the answer stays.

    The newest run on the base decides, unless other pull requests have failed alike since: the base may have broken
    after its last run.
    """
    judged = [past for past in base if past.red or past.conclusion == "success"]
    last = judged[0] if judged else None
    if last and last.red and _alike(failed, last):
        return Compared(history=History.KNOWN, url=last.url)
    since = [past for past in others if last is None or past.at > last.at]
    if (witness := _witness(failed, since)) is not None:
        return Compared(history=History.KNOWN, url=witness.url, elsewhere=True)
    if last is None:
        return Compared(history=History.NO_BASELINE)
    return Compared(history=History.NEW, url=None if last.red else last.url)


def pasts(rows: Sequence[Row]) -> list[Past]:
    """Return runs that may be compared with: not those that nobody could verify."""
    return [past(row) for row in rows if not {"unverified", "refused"} & set(row["flags"])]


def past(row: Row) -> Past:
    """Return how a stored job ended."""
    failed = row["failed_tests_json"] or ()
    tests: frozenset[Test] = frozenset((test.get("classname"), test["name"]) for test in failed)
    whole = bool(tests) and len(failed) >= (row["failed_tests"] or 0)
    return Past(
        conclusion=row["conclusion"],
        tests=tests if whole else None,
        at=row["completed_at"] or 0,
        url=row["workflow_run_url"],
        pull=row["pr_number"],
    )


def _alike(failed: Past, other: Past) -> bool:
    """Whether everything that failed here failed there; by conclusion where tests were not told."""
    if failed.tests is None or other.tests is None:
        return True
    return failed.tests <= other.tests


def _witness(failed: Past, others: Sequence[Past]) -> Past | None:
    """Return the newest run on another pull request that shows the failure is not this change's.

    One with the same failed tests is enough. Without tests a single failure says little: then the newest run of each
    of several pull requests has to be red.
    """
    newest: dict[int | None, Past] = {}
    for past in others:
        newest.setdefault(past.pull, past)
    if failed.tests is not None:
        return next((past for past in newest.values() if past.red and past.shows(failed.tests)), None)
    first = list(newest.values())[:ENOUGH_OTHERS]
    return first[0] if len(first) == ENOUGH_OTHERS and all(past.red for past in first) else None
