"""Lists that CI plans with: times, shards of a suite, and suggestions of tests to disable; pages and JSON."""

from __future__ import annotations

import asyncio
import heapq
from collections import defaultdict
from dataclasses import dataclass, field
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from aiohttp import web
from msgspec import Meta, Struct

from bot.core.errors import Rejected
from bot.core.escaping import web_url
from bot.evidence.disabled import lists
from bot.evidence.disabled import rows as disabled_rows
from bot.evidence.disabled.feature import DisabledSettings
from bot.evidence.disabled.lists import BytesCache
from bot.evidence.tests.rows import DAY
from bot.evidence.tests.tables import TestJobRow
from bot.job_reports.test_lists import reruns, suggestions, times
from bot.jobs import branch_reads
from bot.oot.allowlist import versions as allowlists
from bot.web import addresses, bodies, openapi, parameters
from bot.web.answers import Answer, RowAnswer, Time, one_of, send_json, time
from bot.web.openapi import (
    INVALID_PARAMETER,
    NOT_FOUND,
    UNKNOWN_BACKEND,
    UNKNOWN_REPOSITORY,
    DeclaredRefusal,
    unknown_backend,
)
from bot.web.page_cache import in_render_thread
from bot.web.parameters import REPO, REPOSITORY, Parameter, describe_parameters, open_query
from bot.web.view import Endpoint, Json, Page, View

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence

    from bot.db.transaction import Transaction
    from bot.evidence.disabled.tables import ListMark
    from bot.job_reports.test_lists.suggestions import Close, Disable
    from bot.jobs.rows import RepositoryRow
    from bot.web.parameters import Query

BACKEND = parameters.another_repository("backend", "the times of a backend instead, owner/repo")
NO_LIST = DeclaredRefusal(404, "no_list", "no times are known yet")
REFUSALS = (NOT_FOUND, UNKNOWN_REPOSITORY, NO_LIST, UNKNOWN_BACKEND)
PARAMETERS = (REPO, BACKEND)
Seconds = dict[str, float]
UNIT = 1.0  # seconds of every test where no time is known at all
SHARDS_MOST = 1_000
TESTS_MOST = 20_000
NAME_MOST = 1_000  # characters of a test
TIME_BYTES = 200  # in memory, of a file and its time
BODY_MOST = 2 * 1024 * 1024  # bytes
LONG = 200  # characters of a base name or configuration
Name = Annotated[str, Meta(min_length=1, max_length=NAME_MOST)]
TIMES: web.AppKey[BytesCache[times.Seconds]] = web.AppKey("times", BytesCache)
_raw_times = msgspec.json.Decoder(dict[str, msgspec.Raw])
_times = msgspec.json.Decoder(dict[str, times.Seconds])
Names = Annotated[list[Name], Meta(max_length=TESTS_MOST)]
_names = msgspec.json.Decoder(Names)
BASE = parameters.text("base", "base name of the job: what is built", most=LONG)
CONFIG = parameters.text("config", "its configuration", most=LONG)
SHARDS_PATH = "/api/ci/{owner}/{repo}/shards.json"
WEEK = 7 * DAY
SHOWN = 100
SENT = 500  # suggestions in one answer
STEPS = ("open", "reopen", "add_platforms", "none")


@dataclass(kw_only=True)
class PlannedShard:
    """Tests that run one after another."""

    tests: list[str] = field(default_factory=list)
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Division:
    """A suite divided into shards, and the tests whose times were unknown."""

    shards: list[PlannedShard]
    unknown: list[str]


class Shard(Struct, frozen=True, kw_only=True):
    """Tests to be run one after the other, the longest first, and how long they take"""

    tests: list[str]
    seconds: float


class Shards(Answer, frozen=True, kw_only=True):
    """A suite in shards that take about the same time"""

    shards: list[Shard]
    unknown: Annotated[
        list[str], Meta(description="tests of unknown time: they count as the mean of the others")
    ]


class SeenIn(RowAnswer, row=TestJobRow, only=("job_id", "name", "at"), frozen=True, kw_only=True):
    """A job in which a test was flaky"""

    job_id: Annotated[int | None, Meta(description="GitHub's; null: the reports are of no job it knows")]
    name: str
    at: Time | None


class SuggestedToDisable(Struct, frozen=True, kw_only=True):
    """Tests that should be disabled, by one issue"""

    step: Annotated[
        str, one_of(STEPS), Meta(description="what to do with the issue; none: no issue can name the test")
    ]
    title: str
    tests: list[str]
    platforms: Annotated[list[str], Meta(description="where, or those to add; none: everywhere")]
    jobs: Annotated[int, Meta(description="in which one of them was flaky within six hours")]
    issue: Annotated[int | None, Meta(description="the one to open again or to add to")]
    url: Annotated[
        str | None, Meta(description="of that issue, or of GitHub's form for a new one, filled in")
    ]
    seen_in: list[SeenIn]


class SuggestedToClose(Struct, frozen=True, kw_only=True):
    """An issue whose tests pass again"""

    issue: int
    title: str
    url: str | None
    passed: Annotated[int, Meta(description="reruns of a week, none of which failed")]


class Suggestions(Answer, frozen=True, kw_only=True):
    """What the evidence of trusted jobs suggests; the bot itself opens and closes no issue"""

    disable: list[SuggestedToDisable]
    close: list[SuggestedToClose]


@dataclass(frozen=True, kw_only=True)
class RepositorySuggestions:
    """The suggestions for a repository."""

    repo: str
    disable: list[tuple[Disable, str]]  # with the address of the form for a new issue
    close: list[Close]


async def find_repository(query: Query) -> RepositoryRow:
    """Find the repository; raises Rejected 404."""
    repository = (await branch_reads.find_branch(query.tx, query.hidden, query[REPO], "")).repository
    backend = query[BACKEND]
    if not backend:
        return repository
    listed = await allowlists.read_in_force(query.tx)
    entry = listed.find(backend) if listed else None
    if entry is None or entry.level < disabled_rows.LEAST_LEVEL or query.hidden.has(entry.repo):
        raise unknown_backend(backend)
    return (await branch_reads.find_branch(query.tx, query.hidden, entry.repo, "")).repository


def no_list(repository: RepositoryRow) -> Rejected:
    """Return the refusal for a repository without known times."""
    return NO_LIST.because(f"no times of tests are known of {repository['full_name']} yet")


def _handler(name: str) -> Callable[[web.Request], Awaitable[web.Response]]:
    @in_render_thread
    async def answer(request: web.Request) -> web.Response:
        """Send a list."""
        async with open_query(request, PARAMETERS) as query:
            repository = await find_repository(query)
            mark = await lists.find_mark(query.tx, repository["repository_id"], name)
            if mark is None:
                raise no_list(repository)
            made = await lists.page_for_request(query.tx, request, mark)
        return lists.send_list(request, made)

    return answer


def _list(name: str, operation: str, summary: str, content: openapi.Content) -> Endpoint:
    path = f"/api/ci/{{owner}}/{{repo}}/{name}.json"
    described = openapi.Operation(
        f"GET {path}",
        operation,
        summary,
        content,
        topic=openapi.CI,
        callers=openapi.READER,
        parameters=describe_parameters(PARAMETERS),
        refusals=[openapi.WRONG_PARAMETER, *REFUSALS, *openapi.READING],
        description="With an `ETag`, good for five minutes.",
    )
    return Endpoint(web.get(path, _handler(name)), described)


TIMES_ENDPOINTS = (
    _list(
        "test-times",
        "testTimes",
        "How long the files of tests take",
        openapi.Content(
            dict[str, dict[str, Seconds]],
            "seconds by base name, configuration and file; `default` stands for those not known",
            {"linux-jammy": {"default": {"test_ops": 312.5}}},
        ),
    ),
    _list(
        "test-class-times",
        "testClassTimes",
        "How long the classes of tests take",
        openapi.Content(
            dict[str, dict[str, dict[str, Seconds]]],
            "seconds by base name, configuration, file and class; `default` stands for those not known",
            {"linux-jammy": {"default": {"test_ops": {"TestCommon": 200.0}}}},
        ),
    ),
    _list(
        "slow-tests",
        "slowTests",
        "Tests that take more than a minute",
        openapi.Content(Seconds, "seconds by test", {"test_x (__main__.TestY)": 75.2}),
    ),
)


def divide_tests(tests: Iterable[str], seconds: Mapping[str, float], count: int) -> Division:
    """Divide tests into `count` shards; the order of the input does not matter.

    Tests of unknown time count as the mean of the known ones. No shard is empty while there are enough tests.
    """
    named = sorted(set(tests))
    known = [seconds[name] for name in named if name in seconds] or list(seconds.values())
    mean = fmean(known) if known else UNIT
    shards = [PlannedShard() for _ in range(count)]
    least = [(0.0, 0, number) for number in range(count)]  # a heap: seconds, tests and number of each shard
    for name in sorted(named, key=lambda name: (-seconds.get(name, mean), name)):
        _, tests_there, number = least[0]
        shards[number].tests.append(name)
        shards[number].seconds += seconds.get(name, mean)
        heapq.heapreplace(least, (shards[number].seconds, tests_there + 1, number))
    return Division(shards=shards, unknown=[name for name in named if name not in seconds])


def _count(request: web.Request) -> int:
    count = addresses.whole(request, "n", default=0, most=SHARDS_MOST)
    if not count:
        raise INVALID_PARAMETER.because("n is missing: it says how many shards are wanted")
    return count


def _split(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


COUNT = Parameter(
    "n", _count, 1, (openapi.needed("n", Annotated[int, Meta(ge=1, le=SHARDS_MOST)], "how many shards"),)
)
TESTS: Parameter[tuple[str, ...]] = parameters.parsed(
    "tests", openapi.Text, "names of files, commas between; without any all", parse=_split, default=()
)
OF_ANY = (REPO, COUNT, BASE, CONFIG, BACKEND)


async def read_shards(query: Query) -> Shards:
    """Divide the tests of the query; without any, all tests with known times."""
    names = query[TESTS]
    return await _divide(query, names)


async def divide_posted(request: web.Request) -> web.Response:
    """Divide the tests of the request's body."""
    body = await bodies.read_body(request, limit=BODY_MOST)
    try:
        names = await asyncio.to_thread(_names.decode, body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        expected = f"send a JSON list of at most {TESTS_MOST:,} names of tests"
        raise Rejected(400, "invalid_body", f"{expected}: {error}"[:300]) from None

    @in_render_thread
    async def answer(request: web.Request) -> web.Response:
        async with open_query(request, OF_ANY) as query:
            shards = await _divide(query, names)
        return send_json(shards)

    return await answer(request)


SHARDS_VIEW = View(
    read=read_shards,
    parameters=(*OF_ANY, TESTS),
    json=Json(
        path=SHARDS_PATH,
        answer=lambda shards: shards,
        content=Shards,
        name="shards",
        summary="A suite in shards that take about the same time",
        topic=openapi.CI,
        refusals=REFUSALS,
    ),
)
POSTED_SHARDS = Endpoint(
    web.post(SHARDS_PATH, divide_posted),
    openapi.Operation(
        f"POST {SHARDS_PATH}",
        "shardsOf",
        "The same for many tests",
        Shards,
        topic=openapi.CI,
        callers=openapi.READER,
        parameters=describe_parameters(OF_ANY),
        body=openapi.Content(Names, f"at most {TESTS_MOST:,} names of files", ["test_ops", "test_nn"]),
        refusals=[
            (400, "invalid_body", "the body is no list of names"),
            openapi.WRONG_PARAMETER,
            *REFUSALS,
            *openapi.READING,
            *openapi.SENDING[:-1],
        ],
    ),
)


async def read_suggestions(query: Query) -> RepositorySuggestions:
    """Read the suggestions for a repository; raises Rejected 404, also if they are turned off."""
    tx, options = query.tx, query.settings.of(DisabledSettings)
    if options.ci_disable != "suggest":
        raise NOT_FOUND.because("suggestions are off: set CI_DISABLE=suggest to see some")
    repository = (await branch_reads.find_branch(tx, query.hidden, query[REPO], "")).repository
    identifier, now = repository["repository_id"], tx.now
    issues = await disabled_rows.disabling_issues(tx, identifier)
    devices = await disabled_rows.devices(tx)
    flaky = await suggestions.flaky_samples(tx, identifier, since=now - WEEK, devices=devices)
    places = await times.names_of_tests(tx, {sample.test_id for sample in flaky})
    again = await reruns.reruns_since(tx, identifier, now - WEEK)
    lately = {sample.test_id for sample in flaky if sample.at >= now - suggestions.WINDOW}
    names = [
        times.test_key(place.name, place.suite) for test_id, place in places.items() if test_id in lately
    ]
    titles = {suggestions.title_of(name) for name in names}
    closed = await suggestions.closed_issues(tx, identifier, titles, options.ci_disable_authors)
    where: defaultdict[str, set[str]] = defaultdict(set)
    for sample in flaky:
        if place := places.get(sample.test_id):
            where[times.test_key(place.name, place.suite)] |= {*sample.platforms, ""}
    listed = lists.disabled_tests(issues)
    disable = suggestions.to_disable(flaky, places, listed, now, closed)
    repo, web_address = repository["full_name"], web_url(query.settings.github_api_url)
    return RepositorySuggestions(
        repo=repo,
        disable=[
            (suggestion, suggestions.form_link(web_address, repo, suggestion))
            for suggestion in disable[:SENT]
        ],
        close=suggestions.to_close(issues, again, where, now),
    )


def suggestions_page(suggested: RepositorySuggestions) -> dict[str, Any]:
    """Return the values of the page."""
    return {
        "repo": suggested.repo,
        "disable": suggested.disable[:SHOWN],
        "more": max(len(suggested.disable) - SHOWN, 0),
        "close": suggested.close[:SHOWN],
        "more_to_close": max(len(suggested.close) - SHOWN, 0),
        "rules": suggestions,
    }


def suggestions_json(suggested: RepositorySuggestions) -> Suggestions:
    """Return the JSON of the suggestions."""
    return Suggestions(
        disable=[_suggested(suggestion, form) for suggestion, form in suggested.disable[:SENT]],
        close=[
            SuggestedToClose(
                issue=suggestion.issue["number"],
                title=suggestion.issue["title"],
                url=suggestion.issue["url"],
                passed=suggestion.green,
            )
            for suggestion in suggested.close[:SENT]
        ],
    )


SUGGESTIONS_VIEW = View(
    read=read_suggestions,
    parameters=(REPO,),
    page=Page(
        path=f"{REPOSITORY}/disabled/suggestions", template="suggestions.html", values=suggestions_page
    ),
    json=Json(
        path="/api/ci/disabled/{owner}/{repo}/suggestions",
        answer=suggestions_json,
        content=Suggestions,
        name="disableSuggestions",
        summary="Tests to disable, and issues to close",
        topic=openapi.CI,
        description="404 unless `CI_DISABLE=suggest`.",
        refusals=(NOT_FOUND, UNKNOWN_REPOSITORY),
        link=lambda suggested: {"repo": suggested.repo},
    ),
)


async def _divide(query: Query, names: Sequence[str]) -> Shards:
    if len(names) > TESTS_MOST or any(len(name) > NAME_MOST for name in names):
        raise INVALID_PARAMETER.because(f"tests: at most {TESTS_MOST:,}, with {NAME_MOST:,} characters each")
    repository = await find_repository(query)
    mark = await lists.find_mark(query.tx, repository["repository_id"], "test-times")
    if mark is None:
        raise no_list(repository)
    base_name, config = query[BASE] or times.DEFAULT, query[CONFIG] or times.DEFAULT
    seconds = await _seconds(query.tx, query.request.app[TIMES], mark, base_name, config)
    division = divide_tests(names or seconds, seconds, query[COUNT])
    return Shards(
        shards=[
            Shard(tests=shard.tests, seconds=round(shard.seconds, times.DIGITS)) for shard in division.shards
        ],
        unknown=division.unknown,
    )


async def _seconds(
    tx: Transaction, cache: BytesCache[times.Seconds], mark: ListMark, base_name: str, config: str
) -> times.Seconds:
    """Return the best known times of files for a job."""
    key = (mark["repository_id"], mark["etag"], base_name, config)
    seconds = cache.find(key)
    if seconds is None:
        made = await lists.last_body(tx, mark["repository_id"], mark["name"]) or b"{}"
        seconds = times.best_times(_some(made, {times.DEFAULT, base_name}), base_name, config)
        cache.store(key, seconds, len(seconds) * TIME_BYTES)
    return seconds


def _some(body: bytes, base_names: Collection[str]) -> dict[str, dict[str, times.Seconds]]:
    """Decode the times of a few base names only: the whole list may be large."""
    decoded = _raw_times.decode(body)
    return {name: _times.decode(decoded[name]) for name in base_names if name in decoded}


def _suggested(suggestion: Disable, form: str) -> SuggestedToDisable:
    step, url = ("open", form) if suggestion.nameable else ("none", None)
    if suggestion.issue:
        step, url = ("reopen" if suggestion.issue.closed else "add_platforms"), suggestion.issue.url
    return SuggestedToDisable(
        step=step,
        title=suggestion.title,
        tests=list(suggestion.tests),
        platforms=list(suggestion.platforms),
        jobs=suggestion.jobs,
        issue=int(suggestion.issue.number) if suggestion.issue else None,
        url=url or None,
        seen_in=[
            SeenIn(job_id=each.job_id if each.job_id > 0 else None, name=each.name, at=time(each.at))
            for each in suggestion.samples
        ],
    )
