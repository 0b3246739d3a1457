"""How a backend stands beside upstream, test by test, on one commit: what upstream passes, and the backend too.

Conformance is the share of the tests upstream passes on a device that the backend runs and passes. A test that upstream
skips or fails says nothing of a backend; one that the backend does not run, or skips, is not passed.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bot.ci.test_results.comparing import Tests

Names = dict[int, int]  # test -> its name without the device
REFERENCE = "cuda"  # the device of upstream that backends are held against, where upstream ran there


@dataclass(kw_only=True)
class Parity:
    """Tests that upstream passes, by what they come to on the backend."""

    tests: int = 0  # that upstream passes
    outcomes: Counter[str] = field(default_factory=Counter)  # passed, failed, skipped

    @property
    def passed(self) -> int:
        """Tests that the backend passes, too."""
        return self.outcomes["passed"]

    @property
    def failed(self) -> int:
        """Tests that fail on the backend."""
        return self.outcomes["failed"]

    @property
    def skipped(self) -> int:
        """Tests that the backend skips."""
        return self.outcomes["skipped"]

    @property
    def missing(self) -> int:
        """Tests that the backend does not run."""
        return self.tests - self.passed - self.failed - self.skipped

    @property
    def conformance(self) -> float | None:
        """The share that the backend passes; None where upstream passes nothing."""
        return self.passed / self.tests if self.tests else None


@dataclass(kw_only=True)
class Compared:
    """A backend beside upstream: in all, and by upstream's file."""

    whole: Parity = field(default_factory=Parity)
    files: dict[str, Parity] = field(default_factory=dict)
    only_theirs: int = 0  # tests that the backend runs and upstream does not


def compare(
    upstream: Tests, backend: Tests, *, names: Names, backend_names: Names, files: Mapping[int, str]
) -> Compared:
    """Return how a backend stands; `names` are of upstream's tests, `files` are theirs, too."""
    passed = {backend_names[one] for one in backend.passed if one in backend_names}
    failed = {backend_names[one] for one in backend.failed if one in backend_names} - passed
    skipped = {backend_names[one] for one in backend.skipped if one in backend_names} - passed - failed
    found = Compared()
    for test_id in upstream.passed:
        name = names.get(test_id)
        if name is None:
            continue
        for parity in (found.whole, found.files.setdefault(files.get(test_id, ""), Parity())):
            parity.tests += 1
            parity.outcomes["passed"] += name in passed
            parity.outcomes["failed"] += name in failed
            parity.outcomes["skipped"] += name in skipped
    known = {names[one] for one in upstream.known if one in names}
    found.only_theirs = len((passed | failed | skipped) - known)
    return found
