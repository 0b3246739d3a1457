"""GET /api/ci/{owner}/{repo}/test-times.json and the like, and shards.json: what CI plans its jobs with."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Annotated

import msgspec
from aiohttp import web
from msgspec import Meta, Struct

from bot.ci.disabled import rows as disabled_rows
from bot.ci.disabled import sent_lists
from bot.ci.disabled.list_cache import BytesCache
from bot.ci.disabled.settings import DisabledSettings
from bot.ci.test_lists import shards, suggestions_page, times
from bot.ci.test_lists.make import NAMES
from bot.ci.trunk import reading
from bot.core.errors import Rejected
from bot.oot.allowlist import rows as allowlists
from bot.web import access, bodies, html, parameters
from bot.web.answers import Answer, send
from bot.web.app_keys import CONTEXT
from bot.web.render_thread import in_render_thread

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Sequence

    from bot.ci.disabled.sent_lists import Mark
    from bot.ci.trunk.rows import RepositoryRow
    from bot.db.transaction import Transaction

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
_names = msgspec.json.Decoder(Annotated[list[Name], Meta(max_length=TESTS_MOST)])


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


async def _listed(request: web.Request, *, name: str) -> web.Response:
    """Answer with a list as it was made last."""
    async with request.app[CONTEXT].store.read() as tx:
        repository = await _repository(request, tx)
        mark = await sent_lists.mark(tx, repository["repository_id"], name)
        if mark is None:
            raise _unknown(repository)
        made = await sent_lists.wanted(tx, request, mark)
    return sent_lists.answer(request, made)


@in_render_thread
async def divide(request: web.Request) -> web.Response:
    """Answer with the tests of the query in shards; without any, with all those whose times are known."""
    given = parameters.given(request, "tests")
    names = [name.strip() for name in given.split(",") if name.strip()]
    return await _divide(request, names)


async def divide_posted(request: web.Request) -> web.Response:
    """Answer with the tests of the body in shards."""
    body = await bodies.read_body(request, limit=BODY_MOST)
    try:
        names = await asyncio.to_thread(_names.decode, body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        expected = f"send a JSON list of at most {TESTS_MOST:,} names of tests"
        raise Rejected(400, "invalid_body", f"{expected}: {error}"[:300]) from None
    return await in_render_thread(partial(_divide, names=names))(request)


async def _divide(request: web.Request, names: Sequence[str]) -> web.Response:
    count = parameters.whole(request, "n", default=0, most=SHARDS_MOST)
    if not count:
        raise Rejected(400, "invalid_parameter", "n is missing: it says how many shards are wanted")
    if len(names) > TESTS_MOST or any(len(name) > NAME_MOST for name in names):
        detail = f"tests: at most {TESTS_MOST:,}, with {NAME_MOST:,} characters each"
        raise Rejected(400, "invalid_parameter", detail)
    base_name = parameters.given(request, "base")[:LONG] or times.DEFAULT
    config = parameters.given(request, "config")[:LONG] or times.DEFAULT
    async with request.app[CONTEXT].store.read() as tx:
        repository = await _repository(request, tx)
        mark = await sent_lists.mark(tx, repository["repository_id"], "test-times")
        if mark is None:
            raise _unknown(repository)
        seconds = await _seconds(tx, request.app[TIMES], mark, base_name, config)
    found = shards.divide(names or seconds, seconds, count)
    return send(
        Shards(
            shards=[Shard(tests=one.tests, seconds=round(one.seconds, times.DIGITS)) for one in found.shards],
            unknown=found.unknown,
        )
    )


async def _seconds(
    tx: Transaction, cache: BytesCache[times.Seconds], mark: Mark, base_name: str, config: str
) -> times.Seconds:
    """Return the times of files that are best for a job."""
    key = (mark.repository_id, mark.etag, base_name, config)
    found = cache.find(key)
    if found is None:
        made = await sent_lists.last(tx, mark.repository_id, mark.name) or b"{}"
        found = times.best(_some(made, {times.DEFAULT, base_name}), base_name, config)
        cache.store(key, found, len(found) * TIME_BYTES)
    return found


async def _repository(request: web.Request, tx: Transaction) -> RepositoryRow:
    """Return the repository asked about: that of the path, or the backend's."""
    repo, backend = parameters.repo(request), parameters.given(request, "backend")
    hidden = await access.hidden_from(request, tx, *([backend] if backend else ()))
    repository = (await reading.find(tx, hidden, repo, "")).repository
    if not backend:
        return repository
    listed = await allowlists.in_force(tx)
    entry = listed.find(backend) if listed else None
    if entry is None or entry.level < disabled_rows.LEAST_LEVEL or hidden.has(entry.repo):
        raise Rejected(404, "unknown_backend", f"no backend {backend[:200]} is listed here")
    return (await reading.find(tx, hidden, entry.repo, "")).repository


def _unknown(repository: RepositoryRow) -> Rejected:
    return Rejected(404, "no_list", f"no times of tests are known of {repository['full_name']} yet")


def _some(body: bytes, base_names: Collection[str]) -> dict[str, dict[str, times.Seconds]]:
    """Return times of some base names; of all of them the list may be large."""
    found = _raw_times.decode(body)
    return {name: _times.decode(found[name]) for name in base_names if name in found}


def _handler(name: str) -> Callable[[web.Request], Awaitable[web.Response]]:
    return in_render_thread(partial(_listed, name=name))


def setup(app: web.Application) -> None:
    """Add the lists, and the page of suggestions."""
    html.add_templates(app, suggestions_page.TEMPLATES)
    if app[CONTEXT].settings.of(DisabledSettings).ci_disable == "suggest":
        html.add_tab(app, "tests", "Suggestions", "/disabled/suggestions", place=11)
    app[TIMES] = BytesCache()
    path = "/api/ci/{owner}/{repo}/shards.json"
    app.add_routes(
        [
            *(web.get(f"/api/ci/{{owner}}/{{repo}}/{name}.json", _handler(name)) for name in NAMES),
            web.get(suggestions_page.ADDRESS, suggestions_page.show),
            web.get("/api/ci/disabled/{owner}/{repo}/suggestions", suggestions_page.as_json),
            web.get(path, divide),
            web.post(path, divide_posted),
        ]
    )
