"""GET /oot/levels and its JSON: which backends are ready for another level, by our thresholds and by the relay's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from bot.core.escaping import web_url
from bot.evidence.tests.judging_rows import find_shared
from bot.oot.allowlist import versions as allowlists
from bot.oot.statistics import readiness
from bot.oot.statistics.daily_sums import DAY_SUMS
from bot.oot.statistics.readiness import (
    HIGHEST,
    PROMOTION_DAYS,
    RelayMeasures,
    Thresholds,
    Word,
    judge_promotion,
    measure_jobs,
)
from bot.oot.statistics.stats import DAY
from bot.pages.backends import job_rows
from bot.pages.backends.interface import NOTHING_TO_SHOW, ONCALL, RESULTS, WORDS, Level
from bot.web import view
from bot.web.answers import Answer, Time, fill_struct, time
from bot.web.failures import FailedJob, SharedFailuresSubject
from bot.web.view import Page, View

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bot.core.settings import Settings
    from bot.oot.allowlist.allowlist import Allowlist
    from bot.oot.allowlist.entry import Entry
    from bot.oot.allowlist.entry import Entry as Entry_of_entry
    from bot.oot.allowlist.versions import VersionRow
    from bot.oot.statistics.daily_sums import DaySumsCache
    from bot.oot.statistics.readiness import Criterion, ReadinessSums
    from bot.oot.statistics.stats import Day
    from bot.pages.backends.job_rows import FailedJobRow
    from bot.web.parameters import Query

_ORDER = {Word.MISSES: 0, Word.MEETS: 1, Word.UNKNOWN: 2}


class Measure(Struct, frozen=True):
    """One measure of a backend, and how it compares with its threshold."""

    name: str
    value: float | None
    shown: str
    threshold: str
    word: Word


class Readiness(Struct, frozen=True):
    """What a backend's numbers suggest about its level."""

    repo: str
    level: Level
    device: str | None
    since: Time | None
    advice: str
    promotion: Word
    demotion: Word
    measures: list[Measure]
    demotion_measures: list[Measure]


class Levels(Answer, frozen=True, kw_only=True):
    """Listed backends that report, with their measures and thresholds"""

    backends: list[Readiness]


@dataclass(frozen=True, kw_only=True)
class SelectedLevels:
    """The backends that the request selects, and the allowlist."""

    words: str
    oncall: str
    backends: list[BackendReadiness]
    in_force: Allowlist | None
    newest: VersionRow | None
    settings: Settings
    # under its preset: backends at L2 and L3 by its criteria
    by_relay: list[tuple[Entry_of_entry, tuple[Criterion, ...]]]


async def measure_backend(query: Query, entry: Entry, *, days: int) -> RelayMeasures:
    """Measure a backend's jobs on pull requests of the last days."""
    since = query.tx.now - days * DAY
    jobs = await job_rows.measured_jobs(query.tx, entry.repo, since=since, hidden=query.hidden.names)
    return measure_jobs(jobs, await read_shared(query, entry, since=since) if jobs else ())


async def read_shared(query: Query, entry: Entry, *, since: int) -> frozenset[str]:
    """Return the keys of failed jobs whose failed tests all failed in upstream's own jobs on that commit, too.

    A job that named fewer tests than failed, or none, is not among them: it must be visible that upstream is to blame.
    """
    failed = await job_rows.failed_pull_jobs(query.tx, entry.repo, since=since, hidden=query.hidden.names)
    subject = SharedFailuresSubject(
        jobs=tuple(failed_job for job in failed if (failed_job := _with_all_tests(job)) is not None),
        devices=frozenset(word.lower() for word in (entry.device, *entry.aka) if word),
    )
    return await find_shared(query.tx, subject) if subject.jobs else frozenset()


@dataclass(frozen=True, kw_only=True)
class BackendReadiness:
    """One listed backend and whether its numbers suggest promotion or demotion."""

    entry: Entry_of_entry
    since: int | None  # epoch milliseconds
    readiness: readiness.Readiness

    @property
    def advice(self) -> str:
        """Advice to an operator about its level."""
        level, judged = int(self.entry.level), self.readiness
        if judged.demote is Word.MISSES and level > 1:
            missed = ", ".join(measure.name for measure in judged.demotion if measure.word is Word.MISSES)
            return f"demotion to L{level - 1} is due: {missed}"
        if level < HIGHEST and judged.promote is Word.MEETS:
            return f"ready for L{level + 1}"
        if judged.promote is Word.MISSES and level < HIGHEST:
            missed = ", ".join(measure.name for measure in judged.measures if measure.word is Word.MISSES)
            return f"not ready for L{level + 1}: {missed}"
        return f"stays at L{level}"

    @property
    def tone(self) -> str:
        """Colour and sign of the advice."""
        if self.readiness.demote is Word.MISSES and self.entry.level > 1:
            return "bad"
        return "good" if self.readiness.promote is Word.MEETS and self.entry.level < HIGHEST else "idle"


async def read_levels(query: Query) -> SelectedLevels:
    """Read the readiness of backends."""
    in_force = await allowlists.read_in_force(query.tx)
    judged = await _judge_backends(query, in_force, query.request.app[DAY_SUMS])
    return SelectedLevels(
        words=query[WORDS],
        oncall=query[ONCALL],
        backends=[backend for backend in judged if _matches(backend, query[WORDS], query[ONCALL])],
        in_force=in_force,
        newest=await allowlists.read_newest(query.tx) if query.for_page else None,
        settings=query.settings,
        by_relay=await _by_relay(query, in_force) if query.for_page else [],
    )


def show_levels(selected: SelectedLevels) -> dict[str, Any]:
    """Return what the page shows."""
    return {
        "in_force": selected.in_force,
        "newest": selected.newest,
        "judged": selected.backends,
        "query": selected.words,
        "oncall": selected.oncall,
        "by_relay": selected.by_relay,
        "relay_days": PROMOTION_DAYS,
        "limits": thresholds(selected.settings),
        "label_prefixes": selected.settings.label_prefixes,
        "github": web_url(selected.settings.github_api_url),
    }


def answer_levels(selected: SelectedLevels) -> Levels:
    """Return every backend's readiness."""
    return Levels(backends=[_readiness(backend) for backend in selected.backends])


def thresholds(settings: Settings) -> Thresholds:
    """Return the thresholds that the settings hold."""
    return Thresholds(
        pass_rate=settings.readiness_pass_rate,
        timeout_rate=settings.readiness_timeout_rate,
        long_rate=settings.readiness_long_rate,
        long=settings.readiness_long,
        queue=settings.readiness_queue,
        tenure=settings.readiness_tenure,
        data_days=settings.readiness_data_days,
        demotion_days=settings.demotion_days,
        demotion_pass_rate=settings.demotion_pass_rate,
        demotion_timeout_rate=settings.demotion_timeout_rate,
        demotion_long=settings.demotion_long,
    )


VIEW = View(
    read=read_levels,
    of_upstream=True,
    parameters=(WORDS, ONCALL),
    page=Page(path="/oot/levels", template="levels.html", values=show_levels, refresh=None),
    json=view.Json(
        path="/api/oot/levels",
        answer=answer_levels,
        content=Levels,
        name="levels",
        summary="Readiness of backends for promotion or demotion",
        topic=RESULTS,
        refusals=(NOTHING_TO_SHOW,),
        link=lambda selected: {"q": selected.words, "oncall": selected.oncall},
    ),
)


def _with_all_tests(job: FailedJobRow) -> FailedJob | None:
    """Return a failed job with its failed tests; None unless it named all of them."""
    named = job["failed_tests_json"] or []
    if not named or job["head_sha"] is None or len(named) < (job["failed_tests"] or 0):
        return None
    tests = frozenset((str(test.get("classname") or ""), str(test["name"])) for test in named)
    return FailedJob(key=job["job_key"], head_sha=job["head_sha"], tests=tests)


async def _by_relay(
    query: Query, in_force: Allowlist | None
) -> list[tuple[Entry_of_entry, tuple[Criterion, ...]]]:
    """Judge the backends at L2 and L3 by the criteria of the relay; only under its preset."""
    if query.settings.preset != "crcr" or in_force is None:
        return []
    tx, by_relay = query.tx, []
    for entry in (*in_force.at(3), *in_force.at(2)):
        history = await allowlists.read_level_history(tx, entry.repo)
        reached = min((since for level, since in history if level > 1), default=None)
        tenure = None if reached is None else (tx.now - reached) / 1000
        measures = await measure_backend(query, entry, days=PROMOTION_DAYS)
        by_relay.append((entry, judge_promotion(measures, tenure)))
    return by_relay


async def _judge_backends(
    query: Query, in_force: Allowlist | None, cache: DaySumsCache
) -> list[BackendReadiness]:
    """Judge every listed backend that reports; those due for demotion come first."""
    tx, hidden, settings = query.tx, query.hidden, query.settings
    entries = [entry for entry in in_force.entries if entry.level > 1] if in_force else []
    today, limits = tx.now // DAY, thresholds(settings)
    span = (today - max(readiness.WINDOW, settings.demotion_days), today)

    def add_up(days: Iterable[Day]) -> ReadinessSums:
        visible = [day for day in days if not hidden.has(day.upstream_key)]
        return readiness.add_up_days(visible, limits, today=today)

    sums = await cache.of_days(tx, ("readiness", hidden.names), span, add_up)
    since = await allowlists.read_levels(tx)
    judged = [
        _judge_backend(entry, sums.get(entry.key) or add_up([]), since.get(entry.key), limits, tx.now)
        for entry in entries
    ]
    return sorted(
        judged,
        key=lambda backend: (
            _ORDER[backend.readiness.demote],
            -int(backend.entry.level),
            backend.tone != "good",
            backend.entry.label.casefold(),
        ),
    )


def _judge_backend(
    entry: Entry_of_entry, sums: ReadinessSums, known: tuple[int, int] | None, limits: Thresholds, now: int
) -> BackendReadiness:
    level = int(entry.level)
    since = known[1] if known and known[0] == level else None
    return BackendReadiness(
        entry=entry,
        since=since,
        readiness=readiness.judge_readiness(sums, limits, level=level, since=since, now=now),
    )


def _matches(backend: BackendReadiness, words: str, oncall: str) -> bool:
    if oncall and oncall not in map(str.casefold, backend.entry.oncalls):
        return False
    names = f"{backend.entry.repo} {backend.entry.device or ''}".casefold()
    return all(word in names for word in words.casefold().split())


def _readiness(backend: BackendReadiness) -> Readiness:
    return Readiness(
        repo=backend.entry.repo,
        level=backend.entry.level,
        device=backend.entry.device,
        since=time(backend.since),
        advice=backend.advice,
        promotion=backend.readiness.promote,
        demotion=backend.readiness.demote,
        measures=[_measure(measure) for measure in backend.readiness.measures],
        demotion_measures=[_measure(measure) for measure in backend.readiness.demotion],
    )


def _measure(measure: readiness.Measure) -> Measure:
    return fill_struct(Measure, measure, value=measure.number, shown=measure.value)
