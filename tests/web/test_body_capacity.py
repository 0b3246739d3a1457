"""What may large bodies take of the bot at once? And do strangers who send slowly keep anybody waiting?"""

import asyncio
import contextlib
import functools
import time
from collections import Counter
from dataclasses import replace
from ipaddress import ip_network

import pytest

from bot.app import make_app
from bot.web.bodies import STRANGERS, BodyCapacities
from tests.harness import L2, SECRET, UPSTREAM, sign
from tests.process import PATIENCE, Process, options_for
from tests.serving import SQLITE, converse, request_head, serving

PATH = "/api/github/webhooks"
KIB, MIB = 1024, 1024 * 1024
NEVER_SLOW = replace(STRANGERS, least_rate=1)


@functools.cache
def signed(size):
    """A body of that many bytes and its signature: making them takes a tenth of a second."""
    body = b'{"a":"' + b"x" * (size - 8) + b'"}'
    return body, sign(body, SECRET).encode()


def delivery(guid, size, *, via=None):
    """Head and body of a signed delivery of that many bytes; `via` is its X-Forwarded-For."""
    body, signature = signed(size)
    headers = {
        "Content-Type": b"application/json",
        "Content-Length": str(size).encode(),
        "X-GitHub-Event": b"star",
        "X-GitHub-Delivery": guid.encode(),
        "X-Hub-Signature-256": signature,
    }
    if via is not None:
        headers["X-Forwarded-For"] = via.encode()
    return request_head("POST", PATH, headers), body


async def arriving(served, guid, size, *, via=None):
    """Send a delivery in two parts; returns status and JSON of the answer."""
    head, body = delivery(guid, size, via=via)
    return await converse(served.url, head + body[: size // 2], body[size // 2 :], pause=0.05)


@pytest.fixture
async def begin():
    """Send a delivery's first bytes; returns the connection and the rest. All are closed in the end."""
    opened = []

    async def send(served, guid, size, sent, *, via=None):
        head, body = delivery(guid, size, via=via)
        reader, writer = await asyncio.open_connection("127.0.0.1", int(served.url.rpartition(":")[2]))
        opened.append(writer)
        writer.write(head + body[:sent])
        await writer.drain()
        return reader, writer, body[sent:]

    yield send
    for writer in opened:
        writer.close()


async def arrived(served):
    """Return when what was sent before has come in: so have three calls and their answers."""
    for _ in range(3):
        assert (await served.get("/healthz"))[0] == 200


async def status_of(reader):
    return int((await reader.readline()).split()[1])


@contextlib.asynccontextmanager
async def with_capacity(bot, *, listed=False, seconds=10.0, **strangers):
    """Serve the bot with other limits for strangers; `listed`: the proxy before it is a trusted one."""
    proxies = (ip_network("127.0.0.1"),) if listed else ()
    context = replace(bot.context, settings=replace(bot.context.settings, trusted_proxies=proxies))
    capacities = BodyCapacities(replace(NEVER_SLOW, **strangers))
    async with serving(bot, make_app(context, body_capacities=capacities, body_seconds=seconds)) as served:
        yield served


@pytest.mark.parametrize("listed", [True, False], ids=["behind a listed proxy", "behind an unlisted proxy"])
@SQLITE
async def test_strangers_who_stall_keep_no_delivery_waiting(bot, begin, listed):
    limits = {name: getattr(STRANGERS, name) for name in ("least_rate", "most_bytes")}
    async with with_capacity(bot, listed=listed, **limits) as served:
        for number in range(60):
            await begin(served, f"stalled-{number}", 25 * MIB, 70 * KIB, via=f"203.0.113.{number // 2}")
        await arrived(served)
        sizes = {f"large-{size}": size for size in (72 * KIB, 100 * KIB, 300 * KIB, 2 * MIB, 20 * MIB)}
        sent = (arriving(served, guid, size, via="198.51.100.7") for guid, size in sizes.items())
        async with asyncio.timeout(30):  # as long as strangers stall
            assert {status for status, _ in await asyncio.gather(*sent)} == {202}
    assert {row["guid"] for row in await bot.rows("delivery")} == sizes.keys()


@SQLITE
async def test_a_large_body_that_stops_coming_is_cut_off(bot, begin):
    async with with_capacity(bot, least_rate=MIB, grace=0.1) as served:
        reader, _, _ = await begin(served, "stalled", 25 * MIB, 70 * KIB)
        answer = (await reader.readuntil(b"}")).decode()
        assert " 408 " in answer.splitlines()[0]
        assert "too slowly" in answer
        small, _, _ = await begin(served, "small", 60 * KIB, 100)
        await asyncio.sleep(0.3)
        assert (await arriving(served, "next", 90 * KIB))[0] == 202
        assert not small.at_eof(), "small ones are in nobody's way"


@SQLITE
async def test_where_capacity_is_short_the_slowest_body_goes_first(bot, begin):
    async with with_capacity(bot, most_bodies=2, least_rate=400 * KIB, grace=60, seconds=60) as served:
        fast, writer, rest = await begin(served, "fast", 12 * MIB, 10 * MIB)
        slow, _, _ = await begin(served, "slow", 25 * MIB, 70 * KIB)
        await arrived(served)
        assert (await arriving(served, "next", 200 * KIB))[0] == 202
        assert await status_of(slow) == 408
        writer.write(rest)
        assert await status_of(fast) == 202


@SQLITE
async def test_an_address_has_its_share_and_the_others_have_theirs(bot, begin):
    async with with_capacity(bot, listed=True, most_each=1, patience=0.3) as served:
        await begin(served, "first", 25 * MIB, 70 * KIB, via="203.0.113.1")
        await arrived(served)
        assert (await arriving(served, "second", 200 * KIB, via="203.0.113.1"))[0] == 503
        assert (await arriving(served, "third", 200 * KIB, via="203.0.113.2"))[0] == 202


@SQLITE
async def test_behind_an_unlisted_proxy_nobody_has_a_share(bot, begin):
    async with with_capacity(bot, most_each=1) as served:
        await begin(served, "first", 25 * MIB, 70 * KIB, via="203.0.113.1")
        await arrived(served)
        assert (await arriving(served, "second", 200 * KIB, via="203.0.113.1"))[0] == 202


@SQLITE
async def test_who_only_says_that_it_is_a_proxy_gives_way_to_others(bot, begin):
    async with with_capacity(bot, listed=True, most_each=1, most_bodies=2) as served:
        proxied = [await begin(served, f"p-{n}", 25 * MIB, 70 * KIB, via="x, 203.0.113.1") for n in range(2)]
        await arrived(served)
        assert (await arriving(served, "other", 200 * KIB, via="203.0.113.2"))[0] == 202
        done, _ = await asyncio.wait(
            [asyncio.create_task(status_of(reader)) for reader, _, _ in proxied], timeout=0
        )
        assert [one.result() for one in done] == [408]


@SQLITE
async def test_bodies_that_do_not_fit_together_come_in_one_after_the_other(bot):
    async with with_capacity(bot, most_bytes=150 * KIB) as served:
        answers = await asyncio.gather(*(arriving(served, f"g-{number}", 400 * KIB) for number in range(6)))
    assert {status for status, _ in answers} == {202}


@SQLITE
async def test_what_has_come_in_whole_and_small_bodies_pass_those_that_wait(bot, begin):
    async with with_capacity(bot, most_bodies=1) as served:
        reader, writer, rest = await begin(served, "first", 300 * KIB, 200 * KIB)
        await arrived(served)
        second = asyncio.create_task(arriving(served, "second", 300 * KIB))
        for size in (100, 60 * KIB):
            assert (await converse(served.url, *delivery(f"small-{size}", size)))[0] == 202
        assert not second.done()
        writer.write(rest)
        assert await status_of(reader) == 202
        assert (await second)[0] == 202


@pytest.mark.parametrize("limits", [{"most_bytes": 200 * KIB}, {"most_bodies": 1}], ids=["bytes", "bodies"])
@SQLITE
async def test_a_body_that_finds_no_room_in_time_is_told_to_come_back(bot, begin, limits):
    async with with_capacity(bot, **limits, patience=0.2) as served:
        reader, writer, rest = await begin(served, "with spaces", 180 * KIB, 170 * KIB)
        await arrived(served)
        async with served.http.post(served.url + PATH, data=b"x" * 300 * KIB) as answer:
            assert (answer.status, (await answer.json())["error"]) == (503, "busy")
            assert int(answer.headers["Retry-After"]) > 0
        writer.write(rest)
        assert await status_of(reader) == 400  # a GUID has no spaces; its capacity is free again
        assert (await arriving(served, "next", 100 * KIB))[0] == 202


@SQLITE
async def test_a_sender_that_hangs_up_gives_its_room_back(bot, begin):
    async with with_capacity(bot, most_bytes=100 * KIB, most_bodies=1) as served:
        _, writer, _ = await begin(served, "gone", 90 * KIB, 80 * KIB)
        await arrived(served)
        writer.close()
        assert (await arriving(served, "next", 90 * KIB))[0] == 202


@SQLITE
async def test_a_refused_body_gives_its_room_back(bot):
    async with with_capacity(bot, most_bytes=100 * KIB, most_bodies=1, patience=0.2) as served:
        for _ in range(3):
            status, answer = await served.send("star", None, body=b"x" * 90 * KIB)
            assert (status, answer["error"]) == (400, "invalid_json")
            status, answer = await served.send("star", None, body=b"x" * 90 * KIB, secret="guessed")
            assert (status, answer["error"]) == (401, "invalid_signature")


@SQLITE
async def test_whoever_is_cut_off_while_others_come_and_go_is_told_so(bot):
    told = Counter()

    async def stall(served, number):
        for again in range(4):
            head, body = delivery(f"s-{number}-{again}", 25 * MIB)
            reader, writer = await asyncio.open_connection("127.0.0.1", int(served.url.rpartition(":")[2]))
            with contextlib.suppress(ConnectionError):
                writer.write(head + body[: 70 * KIB])
                for at in range(70, 400, 10):  # some more of it, at odd times
                    await asyncio.sleep(0.001 * ((number * 7 + at) % 23))
                    writer.write(body[at * KIB : (at + 10) * KIB])
            told[await status_of(reader)] += 1
            writer.close()

    async with with_capacity(bot, most_bodies=3, least_rate=1500 * KIB, grace=0.05, patience=0.3) as served:
        await asyncio.gather(*(stall(served, number) for number in range(40)))
        assert (await arriving(served, "last", 90 * KIB))[0] == 202
    assert told.keys() <= {408, 503}, told
    assert told[408]


@SQLITE
async def test_authenticated_callers_never_wait_for_strangers(bot, begin):
    await bot.github.open_pull(UPSTREAM)
    await bot.settle()
    async with with_capacity(bot, most_bytes=70 * KIB, most_bodies=1, patience=0.2) as served:
        await begin(served, "stranger", 25 * MIB, 70 * KIB)
        await arrived(served)
        assert (await arriving(served, "webhook", 300 * KIB))[0] == 503
        status, answer = await served.report(bot.dispatch(L2), padding="x" * 300 * KIB)
        assert (status, answer["ok"]) == (200, True)


async def stall(url, number, until):
    """Declare a large body, send some of it and stall; again and again, as a stranger."""
    head, body = delivery(f"stalled-{number}", 25 * MIB, via=f"203.0.113.{number // 2}")
    start = head + body[: 70 * KIB]
    while not until.is_set():
        with contextlib.suppress(ConnectionError):
            reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
            writer.write(start)
            await asyncio.wait([asyncio.ensure_future(reader.read()), asyncio.ensure_future(until.wait())],
                               return_when=asyncio.FIRST_COMPLETED)  # fmt: skip
            writer.close()


@pytest.mark.nightly
@pytest.mark.alone
@pytest.mark.parametrize("listed", [True, False], ids=["behind a listed proxy", "behind an unlisted proxy"])
async def test_beside_sixty_stalled_strangers_deliveries_are_answered_within_a_second(
    tmp_path, app_key, listed
):
    options = {"TRUSTED_PROXIES": "127.0.0.1"} if listed else {}
    process = Process(tmp_path, **options_for(tmp_path, private_key=app_key), **options)
    took, over = [], asyncio.Event()

    async def deliver(number):
        head, body = delivery(f"ours-{number}", 72 * KIB, via="198.51.100.7")
        began = time.perf_counter()
        status, _ = await converse(process.url, head + body[: 66 * KIB], body[66 * KIB :], pause=0.02)
        took.append(time.perf_counter() - began)
        return status

    try:
        await asyncio.wait_for((await process.start()).wait(), PATIENCE)
        strangers = [asyncio.create_task(stall(process.url, number, over)) for number in range(60)]
        await asyncio.sleep(1)
        sent = []
        for number in range(400):
            sent.append(asyncio.create_task(deliver(number)))
            await asyncio.sleep(0.05)
        assert set(await asyncio.gather(*sent)) == {202}
        over.set()
        await asyncio.gather(*strangers)
    finally:
        process.kill()
        with contextlib.suppress(ProcessLookupError):
            await process.ended()
    assert sorted(took)[int(len(took) * 0.99)] < 1, sorted(took)[-8:]
