"""How a test fared: its results in every environment and on every backend, day by day, and its failures."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from bot.core import text
from bot.core.json_fields import iso_time
from bot.evidence.tests import result_rows, rows
from bot.evidence.tests.days import Counts
from bot.evidence.tests.parse import block
from bot.evidence.tests.parse.block import FAILING, PASSING, Code
from bot.web.charts import Chart, chart, commits_of_days

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bot.db.transaction import Transaction
    from bot.evidence.tests.parse.block import BlockCase
    from bot.evidence.tests.result_rows import FailureOfTest
    from bot.evidence.tests.tables import EnvRow, TestJobRow, TestRow

RESULTS = 50  # of one environment
JOBS_MOST = 120  # whose blocks are read for one test
SUMMARIES_MOST = 400
EXACT = 10  # seconds; longer times are written without fractions
ANYWHERE = "unknown environment"
ByDay = Mapping[int, Mapping[str, Counts]]  # day since 1970 -> group of environments -> sums
COMPARED = 20  # passes on each side
FACTOR = 1.5
LEAST = 5_000  # milliseconds more


@dataclass(frozen=True, kw_only=True)
class EnvironmentLine:
    """The newest results of a test in one environment of upstream or of a backend, the newest first."""

    repo: str  # whose jobs: a backend's, or upstream's own
    backend: bool
    env_group: str
    results: tuple[JobOutcome, ...]

    @property
    def word(self) -> str:
        """The results in one word: see `overall_status`."""
        return overall_status(self.results)

    @property
    def slower(self) -> Slower | None:
        """By how much the test became slower, by its passes in trusted runs."""
        passes = (
            result for result in self.results if result.job["trusted"] and result.outcome is Code.PASSED
        )
        return slower([result.case.time_ms for result in passes if result.case.time_ms is not None])


@dataclass(frozen=True, kw_only=True)
class Strip:
    """The days of a test in one group of environments, the oldest first."""

    env_group: str
    days: tuple[Day, ...]

    @property
    def seen(self) -> str:
        """The first and the last of these days on which the test ran there."""
        ran = [day.date for day in self.days if day.counts.runs]
        if not ran:
            return "not seen"
        return f"seen {ran[0]}" if len(ran) == 1 else f"first {ran[0]}, last {ran[-1]}"


@dataclass(frozen=True, kw_only=True)
class SameFailure:
    """Failures with the same message."""

    message: str
    count: int
    newest: FailureOfTest
    oldest_at: int


class Slower(NamedTuple):
    """The median time before and now, in milliseconds."""

    before_ms: int
    now_ms: int


@dataclass(frozen=True, kw_only=True)
class JobOutcome:
    """How a test did in one job."""

    job: TestJobRow
    env_group: str
    case: BlockCase
    flaky: bool

    @property
    def outcome(self) -> Code:
        """How it ended."""
        return self.case.code

    @property
    def time_ms(self) -> int | None:
        """How long it took."""
        return self.case.time_ms

    @property
    def word(self) -> str:
        """The outcome in a word; `flaky` if it passed, but not at once."""
        return "flaky" if self.flaky and self.outcome in PASSING else self.outcome.name.lower()

    @property
    def tone(self) -> str:
        """The colour and sign of the result."""
        if self.outcome in FAILING:
            return "bad"
        if self.outcome in PASSING:
            return "warn" if self.flaky else "good"
        return "idle"


@dataclass(frozen=True, kw_only=True)
class Day:
    """How a test did in the trusted runs of a day."""

    date: str
    counts: Counts

    @property
    def tone(self) -> str:
        """The colour and sign of the day; empty if the test did not run."""
        counts = self.counts
        if not counts.runs:
            return ""
        if counts.failed + counts.erred:
            return "warn" if counts.passed else "bad"
        if counts.flaky:
            return "warn"
        return "idle" if counts.skips == counts.runs else "good"

    @property
    def words(self) -> str:
        """The counts in words."""
        counts = self.counts
        failed = counts.failed + counts.erred
        parts = [
            f"{self.date}: {text.plural(counts.runs, 'run')}",
            f"{failed} failed" if failed else "",
            f"{counts.flaky} flaky" if counts.flaky else "",
            f"{counts.skips} skipped" if counts.skips else "",
        ]
        return ", ".join(part for part in parts if part) if counts.runs else f"{self.date}: no run"


def overall_status(results: Iterable[JobOutcome]) -> str:
    """Summarize several results in one word: success, skipped, flaky, or failure.

    Clean passes only are a success, with skips among them skipped; passes beside failures are flaky.
    """
    all_results = list(results)
    passed = any(result.outcome in PASSING for result in all_results)
    failed = any(result.outcome in FAILING for result in all_results)
    if any(result.flaky for result in all_results) or (passed and failed):
        return "flaky"
    if failed:
        return "failure"
    if any(result.outcome is Code.SKIPPED for result in all_results):
        return "skipped"
    return "success" if all_results else "unknown"


async def environment_lines(tx: Transaction, tests: Sequence[TestRow]) -> list[EnvironmentLine]:
    """Read the newest results of tests that differ only in repository and device."""
    by_group: dict[tuple[str, str], list[JobOutcome]] = {}
    for test in tests:
        for result in await _results(tx, test):
            whose = result.job["backend"] or result.job["upstream_repo"] or ""
            by_group.setdefault((whose.casefold(), result.env_group), []).append(result)
    return [_line(group, results) for (_, group), results in sorted(by_group.items())]


def strips(by_day: ByDay, *, last: int, days: int) -> list[Strip]:
    """Return the days up to `last` for every group of environments."""
    groups = sorted({group for sums in by_day.values() for group in sums})
    every = range(last - days + 1, last + 1)
    return [
        Strip(
            env_group=group or ANYWHERE,
            days=tuple(
                Day(date=_date(day), counts=by_day.get(day, {}).get(group, Counts())) for day in every
            ),
        )
        for group in groups
    ]


def time_chart(by_day: ByDay, *, last: int, days: int, repo: str) -> Chart:
    """Chart the average time of a test by day, over all environments.

    Its points lead to the commits of `repo`; to none where that is empty.
    """
    every = range(last - days + 1, last + 1)
    values = [_average(by_day.get(day, {}).values()) for day in every]
    labels = [_date(day) for day in every]
    links = commits_of_days(repo, labels) if repo else ()
    return chart("Average time", labels, [("time", values)], show=format_seconds, links=links)


def format_seconds(value: float) -> str:
    """Format a test's time, short times with two digits.

    >>> format_seconds(0.25), format_seconds(61.5), format_seconds(119), format_seconds(7200)
    ('0.25 s', '62 s', '119 s', '2 h')
    """
    return f"{value:.2g} s" if value < EXACT else text.duration(value)


def same_failures(failures: Iterable[FailureOfTest]) -> list[SameFailure]:
    """Group failures by message, the most frequent first; `failures` are newest first."""
    by_signature: dict[str, list[FailureOfTest]] = {}
    for failure in failures:
        by_signature.setdefault(failure["signature"] or failure["message"], []).append(failure)
    made = [
        SameFailure(message=some[0]["message"], count=len(some), newest=some[0], oldest_at=some[-1]["at"])
        for some in by_signature.values()
    ]
    return sorted(made, key=lambda same: (-same.count, -same.newest["at"]))


def slower(times: Sequence[int]) -> Slower | None:
    """Return by how much a test became slower; `times` are milliseconds of trusted passes, the newest first.

    None where it did not, or where there are fewer than forty of them.
    """
    if len(times) < 2 * COMPARED:
        return None
    now = statistics.median(times[:COMPARED])
    before = statistics.median(times[COMPARED : 2 * COMPARED])
    if now < FACTOR * before or now - before < LEAST:
        return None
    return Slower(round(before), round(now))


def _line(group: str, results: Sequence[JobOutcome]) -> EnvironmentLine:
    newest = results[0].job
    return EnvironmentLine(
        repo=newest["backend"] or newest["upstream_repo"] or "",
        backend=newest["backend"] is not None,
        env_group=group,
        results=tuple(results[:RESULTS]),
    )


async def _results(tx: Transaction, test: TestRow) -> list[JobOutcome]:
    """Read a test's results in the newest jobs that ran its suite, the newest first."""
    summaries = await result_rows.newest_summaries(tx, [test["class_id"]], limit=SUMMARIES_MOST)
    generations = list(dict.fromkeys(summary["generation"] for summary in summaries))[:JOBS_MOST]
    jobs = await result_rows.jobs_by_generation(tx, generations)
    blocks = await rows.blocks_of_jobs(tx, sorted(jobs))
    envs = await rows.environments_by_id(tx, {job["env_id"] for job in jobs.values()})
    flaky = await result_rows.flaky_in(tx, test["id"], sorted(jobs))
    return [
        _result(jobs[generation], case, envs.get(jobs[generation]["env_id"]), flaky=generation in flaky)
        for generation in generations
        if generation in jobs and generation in blocks
        for case in block.decode(blocks[generation]).find(test["id"])
    ]


def _result(job: TestJobRow, case: BlockCase, env: EnvRow | None, *, flaky: bool) -> JobOutcome:
    return JobOutcome(
        job=job,
        env_group=(env["env_group"] if env else "") or ANYWHERE,
        case=case,
        flaky=flaky,
    )


def _average(sums: Iterable[Counts]) -> float | None:
    counted = list(sums)
    runs = sum(counts.runs - counts.skips for counts in counted)
    return sum(counts.time_ms for counts in counted) / runs / 1000 if runs > 0 else None


def _date(day: int) -> str:
    return iso_time(day * rows.DAY)[:10]
