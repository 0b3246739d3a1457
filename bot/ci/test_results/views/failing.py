"""The failing tests of a commit or run: each once, with all its jobs, those that are the author's first."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bot.ci.test_results.parse import identity
from bot.ci.test_results.parse.block import FAILING, Code
from bot.ci.test_results.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bot.ci.test_results.job_tables import TestJobRow
    from bot.ci.test_results.store.result_rows import FailingRow
    from bot.ci.test_results.tables import NamedTestRow

# what an author wants to see first; what is not judged yet stands with what cannot be
ORDER = (
    Verdict.NEW,
    Verdict.NEW_TEST,
    Verdict.NO_BASELINE,
    Verdict.LIKELY_FLAKY,
    Verdict.KNOWN,
    Verdict.DISABLED,
    Verdict.FLAKY,
)
RANK: dict[str | None, int] = {None: ORDER.index(Verdict.NO_BASELINE)} | {
    one.value: rank for rank, one in enumerate(ORDER)
}
WORDS: dict[str | None, str] = {
    Verdict.NEW: "passes without this change",
    Verdict.NEW_TEST: "no trusted run has it",
    Verdict.NO_BASELINE: "nothing to compare with",
    None: "",
    Verdict.LIKELY_FLAKY: "fails elsewhere too",
    Verdict.KNOWN: "fails without this change too",
    Verdict.DISABLED: "by an issue",
    Verdict.FLAKY: "also passed here",
}
TONES: dict[str | None, str] = {
    Verdict.NEW: "bad",
    Verdict.NEW_TEST: "bad",
    Verdict.NO_BASELINE: "bad",
    None: "bad",
}
# what templates see
VALUES = {"VERDICT_WORDS": WORDS, "VERDICT_TONES": TONES}
COUNTS = ("tests", "passed", "failed", "errors", "skipped", "xfailed", "xpassed", "flaky")


@dataclass(frozen=True, kw_only=True)
class Failed:
    """A test that failed, or was flaky, in one job."""

    case: FailingRow
    job: TestJobRow


@dataclass(frozen=True, kw_only=True)
class Named:
    """A test as pages link it."""

    row: NamedTestRow

    @property
    def digest(self) -> str:
        """Its digest, as in its page's address."""
        return identity.shown_digest(self.row["digest"])

    @property
    def file(self) -> str:
        """Its file; empty where that is not known."""
        return self.row["file"]

    @property
    def suite(self) -> str:
        """Its suite."""
        return self.row["suite"]

    @property
    def name(self) -> str:
        """Its name."""
        return self.row["name"]

    @property
    def place(self) -> str:
        """File and suite."""
        return " ".join(part for part in (self.file, self.suite) if part)


@dataclass(frozen=True, kw_only=True)
class FailingTest(Named):
    """A test that failed, or was flaky, with its jobs, those with the verdict closest to the author first."""

    jobs: tuple[Failed, ...]

    @property
    def repository_id(self) -> int:
        """Whose test it is."""
        return self.jobs[0].case["repository_id"]

    @property
    def canonical(self) -> int:
        """Its name on every device: see bot.ci.test_results.parse.identity."""
        return self.jobs[0].case["canonical"]

    @property
    def verdict(self) -> str | None:
        """The verdict that is closest to the author."""
        return self.jobs[0].case["verdict"]

    @property
    def failed(self) -> bool:
        """Whether it failed at the last attempt, in any job."""
        return any(one.case["outcome"] in FAILING for one in self.jobs)

    @property
    def message(self) -> str:
        """The first message there is."""
        return next((one.case["message"] for one in self.jobs if one.case["message"]), "")


def outcome(code: int, *, flaky: bool) -> str:
    """Return the outcome of a case in a word; one that passed only when it was tried again is `flaky`."""
    return "flaky" if flaky and code not in FAILING else Code(code).name.lower()


def group(cases: Iterable[FailingRow], jobs: Iterable[TestJobRow]) -> list[FailingTest]:
    """Return the tests of these cases, in the order in which an author reads them."""
    by_generation = {job["generation"]: job for job in jobs}
    found: dict[int, list[Failed]] = {}
    for case in cases:
        if job := by_generation.get(case["generation"]):
            found.setdefault(case["test_id"], []).append(Failed(case=case, job=job))
    return sorted((_of(failed) for failed in found.values()), key=_order)


def verdicts(tests: Iterable[FailingTest]) -> list[tuple[str, int]]:
    """Return how many tests have which verdict, in order; those that only were flaky included."""
    counts = Counter(one.verdict or Verdict.NO_BASELINE.value for one in tests)
    return [(one.value, counts[one.value]) for one in ORDER if counts[one.value]]


def sums(jobs: Sequence[TestJobRow]) -> dict[str, int]:
    """Return the counts of all jobs."""
    return {name: sum(job[name] for job in jobs) for name in COUNTS}  # type: ignore[literal-required]


def _of(failed: list[Failed]) -> FailingTest:
    ordered = sorted(
        failed, key=lambda one: (RANK[one.case["verdict"]], one.job["name"], one.case["generation"])
    )
    return FailingTest(row=ordered[0].case, jobs=tuple(ordered))


def _order(one: FailingTest) -> tuple[bool, int, str, str, str]:
    return not one.failed, RANK[one.verdict], one.file, one.suite, one.name
