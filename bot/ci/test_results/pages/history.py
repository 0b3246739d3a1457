"""How a test fared: its newest results in every environment and on every backend, and its failures by what they say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bot.ci.test_results import block, durations, rows
from bot.ci.test_results.block import FAILING, PASSING, Code
from bot.ci.test_results.pages import result_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bot.ci.test_results.block import Found
    from bot.ci.test_results.durations import Slower
    from bot.ci.test_results.pages.result_rows import FailureOfTest
    from bot.ci.test_results.rows import EnvRow, TestJobRow, TestRow
    from bot.db.transaction import Transaction

RESULTS = 50  # of one environment
JOBS_MOST = 120  # whose blocks are read for one test
SUMMARIES_MOST = 400
ANYWHERE = "unknown environment"


@dataclass(frozen=True, kw_only=True)
class Result:
    """What one job said of a test."""

    job: TestJobRow
    env_group: str
    outcome: Code
    attempts: int
    flaky: bool
    time_ms: int | None

    @property
    def word(self) -> str:
        """The outcome in a word; `flaky`: passed, but not at once."""
        return "flaky" if self.flaky and self.outcome in PASSING else self.outcome.name.lower()

    @property
    def tone(self) -> str:
        """Its colour and sign."""
        if self.outcome in FAILING:
            return "bad"
        if self.outcome in PASSING:
            return "warn" if self.flaky else "good"
        return "idle"


@dataclass(frozen=True, kw_only=True)
class Line:
    """The newest results of a test in one environment, of upstream or of one backend; the newest first."""

    whose: str  # a backend, empty: the repository's own CI
    env_group: str
    results: tuple[Result, ...]

    @property
    def word(self) -> str:
        """What they come to: see `status`."""
        return status(self.results)

    @property
    def slower(self) -> Slower | None:
        """By how much it became slower, by passes of trusted runs."""
        passes = (one for one in self.results if one.job["trusted"] and one.outcome is Code.PASSED)
        return durations.slower([one.time_ms for one in passes if one.time_ms is not None])


@dataclass(frozen=True, kw_only=True)
class SameFailure:
    """Failures that say the same."""

    message: str
    count: int
    newest: FailureOfTest
    oldest_at: int


def status(results: Iterable[Result]) -> str:
    """Return one word for several results: success, skipped, flaky, or failure.

    Clean passes only are a success, with skips among them skipped; passes beside failures are flaky.
    """
    found = list(results)
    passed = any(one.outcome in PASSING for one in found)
    failed = any(one.outcome in FAILING for one in found)
    if any(one.flaky for one in found) or (passed and failed):
        return "flaky"
    if failed:
        return "failure"
    if any(one.outcome is Code.SKIPPED for one in found):
        return "skipped"
    return "success" if found else "unknown"


async def lines(tx: Transaction, tests: Sequence[TestRow]) -> list[Line]:
    """Return the newest results of some tests, that are the same but for the repository and device."""
    found: dict[tuple[str, str], list[Result]] = {}
    for test in tests:
        for result in await _results(tx, test):
            whose = result.job["backend"] or ""
            found.setdefault((whose.casefold(), result.env_group), []).append(result)
    made = [
        Line(whose=some[0].job["backend"] or "", env_group=group, results=tuple(some[:RESULTS]))
        for (_, group), some in sorted(found.items())
    ]
    return sorted(made, key=lambda line: (line.whose.casefold(), line.env_group))


async def _results(tx: Transaction, test: TestRow) -> list[Result]:
    """Return what the newest jobs that ran a test's suite said of it, the newest first."""
    summaries = await result_rows.newest_summaries(tx, [test["class_id"]], limit=SUMMARIES_MOST)
    generations = list(dict.fromkeys(one["generation"] for one in summaries))[:JOBS_MOST]
    jobs = await result_rows.jobs_by_generation(tx, generations)
    blocks = await rows.blocks(tx, sorted(jobs))
    envs = await rows.environments(tx, {job["env_id"] for job in jobs.values()})
    flaky = await result_rows.flaky_in(tx, test["id"], sorted(jobs))
    return [
        _result(jobs[generation], case, envs.get(jobs[generation]["env_id"]), flaky=generation in flaky)
        for generation in generations
        if generation in jobs and generation in blocks
        for case in block.decode(blocks[generation]).find(test["id"])
    ]


def _result(job: TestJobRow, case: Found, env: EnvRow | None, *, flaky: bool) -> Result:
    return Result(
        job=job,
        env_group=(env["env_group"] if env else "") or ANYWHERE,
        outcome=case.code,
        attempts=case.attempts,
        flaky=flaky,
        time_ms=case.time_ms,
    )


def alike(failures: Iterable[FailureOfTest]) -> list[SameFailure]:
    """Return failures by what they say, the most frequent first; `failures` are newest first."""
    found: dict[str, list[FailureOfTest]] = {}
    for one in failures:
        found.setdefault(one["signature"] or one["message"], []).append(one)
    made = [
        SameFailure(message=some[0]["message"], count=len(some), newest=some[0], oldest_at=some[-1]["at"])
        for some in found.values()
    ]
    return sorted(made, key=lambda one: (-one.count, -one.newest["at"]))
