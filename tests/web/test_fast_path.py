"""Is a delivery that comes in one piece answered as any other is, and everything unusual left to aiohttp?"""

import asyncio
import json
import uuid

import pytest

from tests.harness import SECRET, UPSTREAM, UPSTREAM_ID, sign
from tests.process import PATIENCE
from tests.serving import SQLITE
from tests.web.test_edge import HEALTHZ, call, gated  # noqa: F401 - `call` is a fixture

pytestmark = SQLITE
BODY = json.dumps({"action": "opened", "repository": {"id": UPSTREAM_ID, "full_name": UPSTREAM}}).encode()


def delivery(body=BODY, *, line="POST /api/github/webhooks HTTP/1.1", guid=None, length=None, **headers):
    """A delivery as GitHub writes it; headers given as None are left out, `_` stands for a hyphen."""
    plain = {
        "Host": "bot.example", "Content-Length": str(len(body)) if length is None else length,
        "User-Agent": "GitHub-Hookshot/1", "Accept": "*/*", "Content-Type": "application/json",
        "X-GitHub-Delivery": guid or str(uuid.uuid4()), "X-GitHub-Event": "issues",
        "X-Hub-Signature-256": sign(body, SECRET),
    }  # fmt: skip
    plain |= {name.replace("_", "-"): value for name, value in headers.items()}
    told = "".join(f"{name}: {value}\r\n" for name, value in plain.items() if value is not None)
    return f"{line}\r\n{told}\r\n".encode() + body


async def answer_of(reader):
    """Status, headers with their names in lower case, and JSON where it is that."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    line, *rest = head.strip().split("\r\n")
    headers = {name.lower(): value for name, _, value in (one.partition(": ") for one in rest)}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    told = json.loads(body) if "json" in headers["content-type"] else {}
    return int(line.split()[1]), headers, told


def by_aiohttp(headers):
    return "server" in headers


async def test_a_delivery_in_one_piece_is_stored_and_acknowledged(bot, call):  # noqa: F811
    async with gated(bot) as port, asyncio.timeout(PATIENCE):
        sent = delivery(guid="g-1")
        reader, writer = await call(port, sent)
        status, headers, told = await answer_of(reader)
        assert (status, told) == (202, {"ok": True, "delivery": "g-1"})
        assert headers["x-request-id"] == "g-1"
        assert headers["content-type"] == "application/json"
        assert not by_aiohttp(headers)
        writer.write(sent)
        assert (await answer_of(reader))[2] == {"ok": True, "delivery": "g-1", "duplicate": True}
    (row,) = [row for row in await bot.rows("delivery") if row["guid"] == "g-1"]
    assert (row["event"], row["action"], row["repo"]) == ("issues", "opened", UPSTREAM)
    assert json.loads(row["headers"])["User-Agent"] == "GitHub-Hookshot/1"


async def test_requests_that_do_not_wait_for_answers_get_them_in_their_order(bot, call):  # noqa: F811
    async with gated(bot) as port, asyncio.timeout(PATIENCE):
        reader, writer = await call(port, delivery(guid="g-1"))
        await asyncio.sleep(0)
        writer.write(delivery(guid="g-2"))
        writer.write(HEALTHZ)
        writer.write(delivery(guid="g-3"))
        found = [await answer_of(reader) for _ in range(4)]
    assert [told.get("delivery") for _, _, told in found] == ["g-1", "g-2", None, "g-3"]


@pytest.mark.parametrize(
    "odd",
    [
        delivery(X_Hub_Signature_256="sha256=" + "0" * 64),
        delivery(X_Hub_Signature_256=None),
        delivery(X_GitHub_Event="No Event"),
        delivery(b"[]"),
        delivery(b"\xff"),
        delivery(Content_Type="application/x-www-form-urlencoded"),
        delivery(Content_Encoding="gzip"),
        delivery(Connection="close"),
        delivery(Host=None),
        delivery(line="POST /api/github/webhooks/ HTTP/1.1"),
        delivery(line="POST /api/github/webhooks?a=b HTTP/1.1"),
        delivery(line="POST /api/github/webhooks HTTP/1.0"),
        delivery(line="PUT /api/github/webhooks HTTP/1.1"),
        delivery(line="POST /api/github/webhooksX HTTP/1.1"),
        delivery(Transfer_Encoding="chunked", length=""),
        delivery(Transfer_Encoding="chunked"),
        delivery(length=f"+{len(BODY)}"),
        delivery(length=f"{len(BODY)}, {len(BODY)}"),
        delivery(**{"content-length": "3"}),
        delivery(X_Name="a\r\n folded"),
        delivery(X_Name="a\nContent-Length: 3"),
        delivery(X_Name="\x00"),
        delivery(X_Name="\xe4"),
        delivery(X_Name=""),
        delivery(X_Name="a" * 9_000),
        delivery().replace(b"\r\n", b"\n"),
        delivery().replace(b"Accept: */*", b"Accept : */*"),
        delivery().replace(b"Accept: */*", b"no colon"),
    ],
)
async def test_whatever_is_unusual_is_answered_by_aiohttp(bot, call, odd):  # noqa: F811
    """The same bytes get the same answer without the fast path: `bot` is served without one."""
    plain = int(bot.url.rpartition(":")[2])
    async with gated(bot) as port, asyncio.timeout(PATIENCE):
        found = []
        for one in (plain, port):
            reader, _ = await call(one, odd.replace(b"X-GitHub-Delivery: ", b"X-GitHub-Delivery: %d-" % one))
            found.append(await answer_of(reader))
    (expected, _, said), (status, headers, told) = found
    assert by_aiohttp(headers)
    assert (status, told.keys()) == (expected, said.keys())
    assert told.get("error") == said.get("error")


@pytest.mark.parametrize("size", [100, 9_000, 60_000])
async def test_a_body_that_comes_after_its_head_is_waited_for(bot, call, size):  # noqa: F811
    sent = delivery(json.dumps({"filler": "x" * size}).encode())
    head, _, body = sent.partition(b"\r\n\r\n")
    async with gated(bot) as port, asyncio.timeout(PATIENCE):
        reader, writer = await call(port, head + b"\r\n\r\n")
        for piece in (body[:50], body[50:]):
            await asyncio.sleep(0.02)
            writer.write(piece)
        status, headers, _ = await answer_of(reader)
        assert status == 202
        assert not by_aiohttp(headers)


@pytest.mark.parametrize(
    ("cuts", "pause"), [((100, 500), 0.02), ((-10,), 0.7)], ids=["head in two pieces", "slow body"]
)
async def test_a_delivery_in_other_pieces_is_taken_by_aiohttp(bot, call, cuts, pause):  # noqa: F811
    sent = delivery()
    async with gated(bot) as port, asyncio.timeout(PATIENCE):
        reader, writer = await call(port, sent[: cuts[0]])
        for start, end in zip(cuts, [*cuts[1:], None], strict=True):
            await asyncio.sleep(pause)
            writer.write(sent[start:end])
        status, headers, _ = await answer_of(reader)
        assert status == 202
        assert by_aiohttp(headers)


async def test_a_connection_lost_before_the_body_came_leaves_nothing(bot, call):  # noqa: F811
    async with gated(bot) as port, asyncio.timeout(PATIENCE):
        for _ in range(3):
            _, writer = await call(port, delivery(guid="half")[:-10])
            await asyncio.sleep(0.02)
            writer.close()
        reader, _ = await call(port, delivery(guid="whole"))
        assert (await answer_of(reader))[0] == 202
    await bot.settle()
    assert [row["guid"] for row in await bot.rows("delivery")] == ["whole"]


async def test_two_deliveries_in_one_piece_are_two(bot, call):  # noqa: F811
    async with gated(bot) as port, asyncio.timeout(PATIENCE):
        reader, _ = await call(port, delivery(guid="g-1") + delivery(guid="g-2"))
        assert [(await answer_of(reader))[2]["delivery"] for _ in range(2)] == ["g-1", "g-2"]


async def test_an_idle_connection_is_closed_after_its_time(bot, call):  # noqa: F811
    async with gated(bot, keepalive=0.3, head=0.1) as port, asyncio.timeout(PATIENCE):
        reader, writer = await call(port, delivery())
        await answer_of(reader)
        await asyncio.sleep(0.2)
        writer.write(delivery())
        await answer_of(reader)
        assert await reader.read() == b""


async def test_what_cannot_be_stored_is_refused_in_the_usual_words(bot, call, tmp_path):  # noqa: F811
    spool = tmp_path / "ootbot.db.spool"
    async with gated(bot) as port, asyncio.timeout(PATIENCE):
        await bot.settle()
        spool.unlink(missing_ok=True)
        spool.mkdir()
        reader, writer = await call(port, delivery())
        status, headers, told = await answer_of(reader)
        assert (status, told["ok"], told["error"]) == (503, False, "store_unavailable")
        assert int(headers["retry-after"]) > 0
        spool.rmdir()
        writer.write(delivery())
        assert (await answer_of(reader))[0] == 202
