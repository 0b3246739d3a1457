"""Which tests to disable and which issues to close: suggestions from evidence, for people to decide."""

from __future__ import annotations

from collections import defaultdict
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlencode

import sqlalchemy as sa

from bot.core import escaping
from bot.evidence.disabled import issue_text
from bot.evidence.disabled.rows import platforms_of
from bot.evidence.disabled.tables import CLOSED, ISSUE
from bot.evidence.tests import rows
from bot.evidence.tests.tables import BASELINE, test_failure, test_job
from bot.job_reports.test_lists.times import test_key

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from bot.db.transaction import Transaction
    from bot.evidence.disabled.lists import Tests
    from bot.evidence.disabled.tables import DisablingRow
    from bot.job_reports.test_lists.tables import RerunRow
    from bot.job_reports.test_lists.times import NameOfTest

HOUR = 3_600_000  # milliseconds
WINDOW, SEEN_WITHIN = 6 * HOUR, 5 * HOUR
JOBS_MORE_THAN = 2  # distinct jobs in which a test was flaky
TESTS_MORE_THAN = 4  # of one file, which one issue then names together
GREEN_LEAST = 150  # passes of reruns on each platform of an issue
UNTOUCHED = 14 * 24 * HOUR  # an issue, before it is suggested to be closed
LABEL = "skipped"
SAMPLES = 3
URL_MOST = 7_000  # characters of a link
NONE: Mapping[str, Issue] = MappingProxyType({})
MOST = 20_000  # flaky results looked at, the newest first
BATCH = 500  # titles in one statement
ASSOCIATIONS = ("OWNER", "MEMBER", "COLLABORATOR")  # of authors whose issues may count again
JOB, FAILURE = test_job.c, test_failure.c


class Sample(NamedTuple):
    """A job in which a test was flaky."""

    test_id: int
    generation: int
    run_id: int
    job_id: int
    name: str
    platforms: frozenset[str]
    at: int


class Issue(NamedTuple):
    """An issue that disables a test, or did until it was closed."""

    number: str
    url: str
    closed: bool = False


class Disable(NamedTuple):
    """Tests that should be disabled: by a new issue, by extending an open one, or by reopening a closed one."""

    title: str
    body: str
    tests: tuple[str, ...]
    platforms: tuple[str, ...]
    jobs: int  # in which one of them was flaky
    samples: tuple[Sample, ...]
    issue: Issue | None  # that disables it elsewhere, or was closed
    nameable: bool  # False: an issue cannot name it


class Close(NamedTuple):
    """An issue that can be closed, and how often its tests passed meanwhile."""

    issue: DisablingRow
    green: int


def to_disable(
    samples: Iterable[Sample],
    places: Mapping[int, NameOfTest],
    listed: Tests,
    now: int,
    closed: Mapping[str, Issue] = NONE,
) -> list[Disable]:
    """Suggest disabling the tests that were flaky in several jobs of the last hours, those in the most jobs first.

    `closed` holds issues that disabled something once, by their titles.
    """
    by_test: defaultdict[int, list[Sample]] = defaultdict(list)
    for sample in samples:
        if sample.at >= now - WINDOW and sample.test_id in places:
            by_test[sample.test_id].append(sample)
    by_file: defaultdict[str, list[Disable]] = defaultdict(list)
    for test_id, failures in by_test.items():
        jobs = {sample.generation for sample in failures}
        if len(jobs) > JOBS_MORE_THAN and max(sample.at for sample in failures) >= now - SEEN_WITHIN:
            suggested = _single(places[test_id], failures, listed, closed)
            if suggested:
                by_file[places[test_id].file].append(suggested)
    suggestions: list[Disable] = []
    for file, several in by_file.items():
        new = [suggestion for suggestion in several if suggestion.issue is None and suggestion.nameable]
        if len(new) > TESTS_MORE_THAN:
            suggestions.append(_several(file, new))
            suggestions += [suggestion for suggestion in several if suggestion not in new]
        else:
            suggestions += several
    return sorted(suggestions, key=lambda suggestion: (-suggestion.jobs, suggestion.title))


def to_close(
    issues: Iterable[DisablingRow], reruns: Sequence[RerunRow], flaky: Mapping[str, Collection[str]], now: int
) -> list[Close]:
    """Suggest closing the issues whose tests passed in all of a week's reruns on each platform, often enough.

    `flaky` holds the tests that were flaky in that time, and where.
    """
    by_test: defaultdict[str, list[RerunRow]] = defaultdict(list)
    for row in reruns:
        by_test[test_key(row["name"], row["suite"])].append(row)
    to_be_closed: list[Close] = []
    for issue in issues:
        touched = issue["updated_at"]
        if not issue["listed"] or issue["kind"] != "test" or touched is None or touched > now - UNTOUCHED:
            continue
        green = [_green(by_test.get(name, ()), on, flaky.get(name, ())) for name, on in issue["entries"]]
        if all(green):
            to_be_closed.append(Close(issue, sum(green)))
    return to_be_closed


def title_of(test: str) -> str:
    """Return the title of the issue that disables a test."""
    return f"{issue_text.DISABLED} {test}"


def form_link(web: str, repo: str, suggestion: Disable) -> str:
    """Return the address of GitHub's prefilled form for a new issue; a body that is too long is cut."""
    lines = suggestion.body.splitlines()
    while True:
        fields = {"title": suggestion.title, "labels": LABEL, "body": "\n".join(lines)}
        address = f"{web}/{repo}/issues/new?{urlencode(fields)}"
        if len(address) <= URL_MOST or not lines:
            return address
        lines.pop()


async def flaky_samples(
    tx: Transaction, repository_id: int, *, since: int, devices: Collection[str]
) -> list[Sample]:
    """Read where tests were flaky in trusted jobs since a time (epoch milliseconds)."""
    columns = (
        JOB.generation,
        JOB.run_id,
        JOB.job_id,
        JOB.workflow,
        JOB.name,
        JOB.env_id,
        FAILURE.test_id,
        FAILURE.at,
    )
    query = (
        sa.select(*columns)
        .join_from(test_failure, test_job, JOB.generation == FAILURE.generation)
        .where(
            FAILURE.repository_id == repository_id,
            FAILURE.at >= since,
            FAILURE.flaky,
            FAILURE.trusted,
            BASELINE,
        )
    )
    failures = await tx.rows(query.order_by(FAILURE.at.desc()).limit(MOST))
    environments = await rows.environments_by_id(tx, {row["env_id"] for row in failures})
    known = issue_text.PLATFORMS | set(devices)
    words: dict[int, frozenset[str]] = {}
    for row in failures:
        if row["generation"] not in words:
            job: Any = row  # a part of a job's row, which is enough
            words[row["generation"]] = known & platforms_of(job, environments.get(row["env_id"]))
    return [
        Sample(
            test_id=row["test_id"],
            generation=row["generation"],
            run_id=row["run_id"],
            job_id=row["job_id"],
            name=row["name"],
            platforms=words[row["generation"]],
            at=row["at"],
        )
        for row in failures
    ]


async def closed_issues(
    tx: Transaction, repository_id: int, titles: Collection[str], authors: Collection[str]
) -> dict[str, Issue]:
    """Return the newest closed issue with each of these titles, by authors whose issues may count again."""
    trusted = sa.or_(
        ISSUE.author_association.in_(ASSOCIATIONS),
        sa.func.lower(ISSUE.user_login).in_(sorted(login.lower() for login in authors)),
    )
    by_title: dict[str, Issue] = {}
    wanted = sorted(titles)
    for at in range(0, len(wanted), BATCH):
        query = sa.select(ISSUE.title, ISSUE.number, ISSUE.html_url).where(
            CLOSED,
            ISSUE.repository_id == repository_id,
            ISSUE.title.in_(wanted[at : at + BATCH]),
            ISSUE.number.is_not(None),
            ISSUE.deleted_at.is_(None),
            trusted,
        )
        for row in await tx.run(query.order_by(ISSUE.number)):
            by_title[row.title] = Issue(str(row.number), row.html_url or "", closed=True)
    return by_title


def _green(reruns: Sequence[RerunRow], platforms: Sequence[str], flaky: Collection[str]) -> int:
    """Count the passes of a test on its platforms (none: all); 0 if it may not be enabled yet."""
    if flaky and (not platforms or not {*platforms}.isdisjoint(flaky)):
        return 0
    least = []
    for platform in platforms or [""]:
        here = [row for row in reruns if not platform or platform in row["platforms"]]
        if any(row["red"] for row in here):
            return 0
        least.append(sum(row["green"] for row in here))
    return min(least) if min(least) >= GREEN_LEAST else 0


def _single(
    place: NameOfTest, failures: Sequence[Sample], listed: Tests, closed: Mapping[str, Issue]
) -> Disable | None:
    """Suggest disabling a test; None if it is disabled already."""
    name = test_key(place.name, place.suite)
    title = title_of(name)
    platforms = frozenset(word for sample in failures for word in sample.platforms)
    issue = listed.get(name)
    if issue is not None:
        platforms -= set(issue[2])
        if not issue[2] or not platforms:
            return None
    jobs = len({sample.generation for sample in failures})
    newest = tuple(sorted(failures, key=lambda sample: (-sample.at, sample.generation))[:SAMPLES])
    words = tuple(sorted(platforms))
    return Disable(
        title=title,
        body=_body([f"Platforms: {', '.join(words)}"] if words else [], [name], place.file, jobs),
        tests=(name,),
        platforms=words,
        jobs=jobs,
        samples=newest,
        issue=Issue(*issue[:2]) if issue else closed.get(title),
        nameable=issue_text.is_test(name),
    )


def _several(file: str, single: Sequence[Disable]) -> Disable:
    """Combine the suggestions for several tests of a file."""
    ordered = sorted(single, key=lambda suggestion: suggestion.title)
    listing = [
        f"{suggestion.tests[0]}: {', '.join(suggestion.platforms)}"
        if suggestion.platforms
        else suggestion.tests[0]
        for suggestion in ordered
    ]
    names = [name for suggestion in ordered for name in suggestion.tests]
    head = [issue_text.HEADING, issue_text.FENCE, *listing, issue_text.FENCE]
    samples = sorted(
        (sample for suggestion in ordered for sample in suggestion.samples), key=lambda sample: -sample.at
    )
    jobs = max(suggestion.jobs for suggestion in ordered)
    return Disable(
        title=f"{issue_text.DISABLED} {issue_text.MULTIPLE} flaky tests in {_word(file)}",
        body=_body(head, names, file, jobs),
        tests=tuple(names),
        platforms=tuple(sorted({word for suggestion in ordered for word in suggestion.platforms})),
        jobs=jobs,
        samples=tuple(samples[:SAMPLES]),
        issue=None,
        nameable=True,
    )


def _body(head: Sequence[str], names: Sequence[str], file: str, jobs: int) -> str:
    subject = f"`{_word(names[0])}`" if len(names) == 1 else f"{len(names)} tests"
    where = f" of `{_word(file)}`" if file else ""
    words = f"{subject}{where}: flaky in {jobs} trusted jobs within six hours, failing and passing there."
    return "\n".join([*head, "", words])


def _word(text: str) -> str:
    return escaping.shorten(escaping.one_line(text).replace("`", "'"), 200)
