"""GET and POST /api/ci/{owner}/{repo}/shards.json: a suite in shards that take about the same time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import msgspec
from aiohttp import web
from msgspec import Meta, Struct

from bot.ci.disabled import list_rows
from bot.ci.disabled.list_cache import BytesCache
from bot.ci.test_lists import shards, times
from bot.ci.test_lists.lists_view import BACKEND, REFUSALS, find_repository, no_list
from bot.core.errors import Rejected
from bot.web import bodies, parameters
from bot.web import operations as op
from bot.web import view_parameters as declare
from bot.web.answers import Answer, send
from bot.web.asked import Parameter, asking, describe
from bot.web.refusals import INVALID_PARAMETER
from bot.web.render_thread import in_render_thread
from bot.web.view import Endpoint, Json, View
from bot.web.view_parameters import REPO

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from bot.ci.disabled.tables import ListMark
    from bot.db.transaction import Transaction
    from bot.web.asked import Asked

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


def _count(request: web.Request) -> int:
    count = parameters.whole(request, "n", default=0, most=SHARDS_MOST)
    if not count:
        raise INVALID_PARAMETER.because("n is missing: it says how many shards are wanted")
    return count


def _split(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


COUNT = Parameter(
    "n", _count, 1, (op.needed("n", Annotated[int, Meta(ge=1, le=SHARDS_MOST)], "how many shards"),)
)
BASE = declare.text("base", "base name of the job: what is built", most=LONG)
CONFIG = declare.text("config", "its configuration", most=LONG)
TESTS: Parameter[tuple[str, ...]] = declare.parsed(
    "tests", op.Text, "names of files, commas between; without any all", parse=_split, default=()
)
OF_ANY = (REPO, COUNT, BASE, CONFIG, BACKEND)


async def read_shards(asked: Asked) -> Shards:
    """Divide the tests of the query; without any, all those whose times are known."""
    names = asked[TESTS]
    return await _divide(asked, names)


async def divide_posted(request: web.Request) -> web.Response:
    """Answer with the tests of the body in shards."""
    body = await bodies.read_body(request, limit=BODY_MOST)
    try:
        names = await asyncio.to_thread(_names.decode, body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        expected = f"send a JSON list of at most {TESTS_MOST:,} names of tests"
        raise Rejected(400, "invalid_body", f"{expected}: {error}"[:300]) from None

    @in_render_thread
    async def answer(request: web.Request) -> web.Response:
        async with asking(request, OF_ANY) as asked:
            found = await _divide(asked, names)
        return send(found)

    return await answer(request)


async def _divide(asked: Asked, names: Sequence[str]) -> Shards:
    if len(names) > TESTS_MOST or any(len(name) > NAME_MOST for name in names):
        raise INVALID_PARAMETER.because(f"tests: at most {TESTS_MOST:,}, with {NAME_MOST:,} characters each")
    repository = await find_repository(asked)
    mark = await list_rows.find_mark(asked.tx, repository["repository_id"], "test-times")
    if mark is None:
        raise no_list(repository)
    base_name, config = asked[BASE] or times.DEFAULT, asked[CONFIG] or times.DEFAULT
    seconds = await _seconds(asked.tx, asked.request.app[TIMES], mark, base_name, config)
    found = shards.divide_tests(names or seconds, seconds, asked[COUNT])
    return Shards(
        shards=[Shard(tests=one.tests, seconds=round(one.seconds, times.DIGITS)) for one in found.shards],
        unknown=found.unknown,
    )


async def _seconds(
    tx: Transaction, cache: BytesCache[times.Seconds], mark: ListMark, base_name: str, config: str
) -> times.Seconds:
    """Return the times of files that are best for a job."""
    key = (mark["repository_id"], mark["etag"], base_name, config)
    found = cache.find(key)
    if found is None:
        made = await list_rows.last_body(tx, mark["repository_id"], mark["name"]) or b"{}"
        found = times.best_times(_some(made, {times.DEFAULT, base_name}), base_name, config)
        cache.store(key, found, len(found) * TIME_BYTES)
    return found


def _some(body: bytes, base_names: Collection[str]) -> dict[str, dict[str, times.Seconds]]:
    """Return times of some base names; of all of them the list may be large."""
    found = _raw_times.decode(body)
    return {name: _times.decode(found[name]) for name in base_names if name in found}


PATH = "/api/ci/{owner}/{repo}/shards.json"
VIEW = View(
    read=read_shards,
    parameters=(*OF_ANY, TESTS),
    json=Json(
        path=PATH,
        answer=lambda found: found,
        content=Shards,
        name="shards",
        summary="A suite in shards that take about the same time",
        topic=op.CI,
        refusals=REFUSALS,
    ),
)
POSTED = Endpoint(
    web.post(PATH, divide_posted),
    op.Operation(
        f"POST {PATH}",
        "shardsOf",
        "The same for many tests",
        Shards,
        topic=op.CI,
        callers=op.READER,
        parameters=describe(OF_ANY),
        body=op.Content(Names, f"at most {TESTS_MOST:,} names of files", ["test_ops", "test_nn"]),
        refusals=[
            (400, "invalid_body", "the body is no list of names"),
            op.WRONG_PARAMETER,
            *REFUSALS,
            *op.READING,
            *op.SENDING[:-1],
        ],
    ),
)
