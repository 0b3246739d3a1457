"""Does any request break the bot? Paths, queries, headers and bodies with NUL, surrogates and absurd numbers."""

import asyncio
import contextlib
import copy
import json
import logging
import random
import re
import socket
from collections import Counter

import pytest
import structlog

from bot.app import make_app
from bot.serving import answering_requests
from bot.web.connections import ConnectionLimits
from tests.harness import L2, L4, SECRET, UPSTREAM, replace, report_body, sign
from tests.serving import SQLITE

ADMIN, RELAY = "an admin token of ours", "a relay's own token"
FEW, MANY = 1_200, 10_000  # requests, many with --nightly
AT_ONCE = 8
LOG_LIMIT = 1_000_000  # bytes
HOSTILE = (  # as they stand in an address
    *[b"%00", b"a%00b", b"%ff"] * 5, b"%C0%80", b"%ED%A0%80", b"%ED%B3%BFx", b"%C3%28", b"\xff", b"\xed\xa0\x80", b"\xc3\xa9", b"%u0000", b"%", b"%2",
    b"9" * 5_000, b"-" + b"9" * 5_000, b"0" * 5_000 + b"1", b"9223372036854775808", b"-1", b"1e999", b"NaN", b"0x10",
    b"%D9%A3", b"%C2%B2", b"%E2%80%AE", b"%EF%BF%BE", b"%F0%9F%98%80" * 100, b"x" * 5_000, b"..%2f..", b"%2e%2e", b"%27--",
    b"%22%3E%3Cscript%3E", b"%0d%0aX-Evil:1", b"%0a", b"%7f", b"%1b%5b31m", b"%5c", b"{x}", b"%25s", b"",
)  # fmt: skip
IN_HEADERS = (
    b"\xff", b"ootk_\xff_x", b"a\xff\xfeb", b"\xed\xa0\x80", b"\xc3\xa9", b"9" * 5_000, b"-" + b"9" * 5_000, b"x" * 5_000, b"",
    b"\x7f", b"%00", b"\xd9\xa3", b"\xc2\xb2", b"\xf0\x9f\x98\x80", b";" * 500, b"," * 500, b"=" * 500, b'"', b"1e999",
    b"bytes=0-" + b"9" * 5_000, b"charset=bogus", b"text/html", b'W/"\xff"', b"\t", b"a b", b"*",
)  # fmt: skip
IN_BODIES = (
    "\x00", "a\x00b", "\ud800", "\udcff x", "9" * 5_000, "x" * 5_000, "\u202e", "", " ", -1, 0, 2**63, 2**64, 10**400, -(2**63) - 1,
    1.5, 1e308, None, True, [], {}, [None], {"\x00": "\x00", "\ud800": 1}, [[[[[[]]]]]], "0x10", "1e999", "\u0663",
)  # fmt: skip
HEADERS = (
    "Authorization", "Cookie", "X-Forwarded-For", "Accept", "Accept-Encoding", "If-None-Match", "If-Modified-Since", "Range",
    "Content-Type", "Content-Encoding", "User-Agent", "Host", "Expect", "Origin", "X-GitHub-Event", "X-GitHub-Delivery",
    "X-GitHub-Hook-ID", "X-GitHub-Hook-Installation-Target-ID", "X-GitHub-Enterprise-Host", "X-Hub-Signature-256",
    "X-OOT-Relay-Token", "X-Request-Id", "traceparent", "Content-Length", "Connection",
)  # fmt: skip
BEFORE_IT = (
    b"",
    b"Bearer ",
    b"bearer ootk_",
    b"Bearer ootk_abc_",
    b"ootbot_admin=1.",
    b"ootbot_admin=",
    b"sha256=",
    b"application/json; ",
)
QUERIES = (
    b"days", b"level", b"q", b"limit", b"event", b"before", b"sha", b"attempt", b"state", b"repo", b"backend", b"cell", b"tab",
    b"said", b"sort", b"refresh", b"again", b"wrong", b"from",
)  # fmt: skip
FITTING = {
    "owner": "pytorch", "org": "org", "repo": "pytorch", "number": "1", "id": "1", "table": "pull_request", "name": "style.css",
    "guid": "known", "sha": "a" * 40,
}  # fmt: skip


class Requests:
    """Hostile requests to every address there is; the same ones every time."""

    def __init__(self, app, *, bearers, report, seed):
        self._random = random.Random(seed)
        self._methods = {}
        for route in app.router.routes():
            if route.method not in {"HEAD", "*"}:
                self._methods.setdefault(route.resource.canonical, []).append(route.method)
        self._paths = sorted(self._methods)
        self._bearers = bearers
        self._report = report

    def make(self, number):
        """Yield (what is hostile, the request)."""
        kinds = (self._path, self._query, self._header, self._body)
        for count in range(number):
            yield kinds[count % len(kinds)]()

    def _path(self):
        template = self._pick([path for path in self._paths if "{" in path])
        names = re.findall(r"{(\w+)[^}]*}", template)
        hostile = self._pick(names)
        target = self._target(template, {hostile: self._pick(HOSTILE)})
        return self._request(template, target, self._bearer())

    def _query(self):
        template = self._pick(self._paths)
        pairs = [(self._pick(QUERIES), self._pick(HOSTILE)) for _ in range(self._random.randint(1, 3))]
        if self._random.random() < 0.1:
            pairs.append((self._pick(HOSTILE), b"1"))
        query = b"&".join(name + b"=" + value for name, value in pairs)
        return self._request(template, self._target(template, {}) + b"?" + query, self._bearer())

    def _header(self):
        template = self._pick(self._paths)
        name, value = self._pick(HEADERS), self._pick(BEFORE_IT) + self._pick(IN_HEADERS)
        return self._request(template, self._target(template, {}), {name: value})

    def _body(self):
        body = copy.deepcopy(self._report)
        place = self._pick(list(_places(body)))
        *way, last = place
        inner = body
        for step in way:
            inner = inner[step]
        inner[last] = self._pick(IN_BODIES)
        path = self._pick(
            ["/api/oot/callback", "/api/oot/callback/batch", "/api/oot/results", "/api/github/webhooks"]
        )
        raw = json.dumps({"reports": [body]} if path.endswith("batch") else body).encode()
        if self._random.random() < 0.2:
            raw = raw.replace(
                b'"',
                self._pick([b"\xff", b"\x00", b'"\xed\xa0\x80', b"9" * 5_000]),
                self._random.randint(1, 9),
            )
        headers = {
            "Authorization": b"Bearer " + self._pick(self._bearers).encode(),
            "X-OOT-Relay-Token": RELAY.encode(),
            "X-GitHub-Event": b"issues",
            "X-GitHub-Delivery": f"hostile-{self._random.random()}".encode(),
            "X-Hub-Signature-256": sign(raw, SECRET).encode(),
            "Content-Type": b"application/json",
            "Content-Length": str(len(raw)).encode(),
        }
        return path.encode() + b" " + repr(place).encode() + b" " + raw[:300], _head(
            "POST", path.encode(), headers
        ) + raw

    def _target(self, template, hostile):
        values = {name: value.encode() for name, value in FITTING.items()} | hostile
        return re.sub(rb"{(\w+)[^}]*}", lambda found: values.get(found[1].decode(), b"x"), template.encode())

    def _bearer(self):
        token = self._pick([None, None, ADMIN, *self._bearers])
        browser = {"Accept": b"text/html"} if self._random.random() < 0.5 else {}
        return browser | ({"Authorization": f"Bearer {token}".encode()} if token else {})

    def _request(self, template, target, headers):
        method = self._pick(self._methods[template])
        if method == "POST":
            headers = {"Content-Length": b"0"} | headers
        raw = _head(method, target, headers)
        return raw[:400], raw

    def _pick(self, choices):
        return self._random.choice(choices)


def _head(method, target, headers):
    lines = [
        f"{method} ".encode() + target + b" HTTP/1.1",
        *([b"Host: 127.0.0.1"] if "Host" not in headers else []),
    ]
    return (
        b"\r\n".join([*lines, *(name.encode() + b": " + value for name, value in headers.items())])
        + b"\r\n\r\n"
    )


def _places(value, way=()):
    """Every place in a JSON object."""
    for name, inner in value.items() if isinstance(value, dict) else enumerate(value):
        yield (*way, name)
        if isinstance(inner, dict | list):
            yield from _places(inner, (*way, name))


async def answers(port, requests):
    """Send requests one after the other; yields (what was asked, status, body) of those that are answered."""
    reader = writer = None
    for what, raw in requests:
        try:
            if writer is None:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(raw)
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60)
            length = re.search(rb"(?i)\r\ncontent-length: (\d+)", head)
            body = await reader.readexactly(int(length[1])) if length and b" 304 " not in head[:20] else b""
            yield what, int(head.split()[1]), body
            ended = bool(re.search(rb"(?i)\r\nconnection: close", head)) or head.startswith(b"HTTP/1.0")
        except (ConnectionError, asyncio.IncompleteReadError):
            ended = True
        if ended and writer:
            await _close(writer)
            writer = None
    if writer:
        await _close(writer)


async def _close(writer):
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


@pytest.fixture
async def filled(bot, github):
    """A bot that has something to show of everything."""
    pull = await github.open_pull(UPSTREAM)
    await github.label(pull, "ciflow/oot/npu")
    await bot.settle()
    await bot.report(bot.dispatch(L2), conclusion="failure")
    await bot.report(bot.dispatch(L4))
    await bot.send("star", {"action": "created"}, guid="known")
    await bot.settle()
    every = {"refused_per_min": 100_000, "rate_limit_per_min": 100_000, "page_cache": 5}
    bot.context = replace(bot.context, settings=replace(bot.context.settings, relay_token=RELAY, **every))
    return bot


@contextlib.asynccontextmanager
async def answering_at(app):
    """The port where an application answers, as `ootbot serve` answers."""
    listening = socket.create_server(("127.0.0.1", 0))
    async with answering_requests(app, listening, ConnectionLimits()):
        yield listening.getsockname()[1]


REPORTED_BY_HAND = {
    b"GET /oot/%00/x": {},
    b"GET /pytorch/%00/pull/1": {},
    b"GET /api/oot/backends/%00/x": {},
    b"GET /oot?q=%00": {},
    b"GET /admin/deliveries?event=%00": {"Authorization": f"Bearer {ADMIN}".encode()},
    b"GET /api/admin/deliveries?event=%00": {"Authorization": f"Bearer {ADMIN}".encode()},
    b"POST /api/oot/callback": {"Authorization": b"Bearer ootk_\xff_x", "Content-Length": b"0"},
    b"POST /api/oot/callback/batch": {"Authorization": b"Bearer ootk_abc_\xff", "Content-Length": b"0"},
    b"GET /healthz": {"Expect": b"\xff"},
}


@pytest.mark.logic
async def test_text_that_no_database_can_look_up_is_refused_before_it_reaches_one(filled):
    asked = []
    for line, headers in REPORTED_BY_HAND.items():
        method, _, target = line.partition(b" ")
        asked.append((line, _head(method.decode(), target, headers)))
    with structlog.testing.capture_logs() as lines:
        async with answering_at(make_app(filled.context)) as port:
            told = {what: status async for what, status, _ in answers(port, asked)}
    fine = {b"GET /healthz": 200} | {line: 401 for line in REPORTED_BY_HAND if b"callback" in line}
    assert told == {line: fine.get(line, 400) for line in REPORTED_BY_HAND}
    assert [line for line in lines if line["log_level"] == "error"] == []


@SQLITE
async def test_a_bug_leaves_one_traceback_a_minute_and_how_often_it_was_met(filled):
    async def fails(_request):
        raise RuntimeError("a bug of ours")

    async def fails_elsewhere(_request):
        raise RuntimeError("another bug of ours")

    app = make_app(filled.context)
    app.router.add_get("/fails", fails)
    app.router.add_get("/elsewhere", fails_elsewhere)

    async def traced(*paths):
        with structlog.testing.capture_logs() as lines:
            async for _, status, _ in answers(port, [(path, _head("GET", path, {})) for path in paths]):
                assert status == 500
        return [
            line.get("not_logged_before", 0)
            for line in lines
            if line["event"] == "a request failed" and "exc_info" in line
        ]

    async with answering_at(app) as port:
        assert await traced(*[b"/fails"] * 20) == [0]
        assert await traced(b"/fails", b"/elsewhere") == [0], "another place is another bug"
        filled.clock.advance(60)
        assert await traced(b"/fails") == [20]


@pytest.mark.parametrize("number", [FEW, pytest.param(MANY, marks=pytest.mark.nightly)])
async def test_no_request_breaks_the_bot(filled, issuer, capsys, caplog, number):
    caplog.set_level(logging.CRITICAL, logger="aiohttp.server")  # as `ootbot serve` does
    bot = filled
    sent = bot.dispatch(L2)
    claims = [{"repository": L2}, {"repository": "a\x00/b"}, {"repository": L2, "run_attempt": "9" * 5_000}]
    claims += [{"repository": L2, "repository_id": "\x00"}, {"repository": L2, "check_run_id": "9" * 30}]
    bearers = [issuer.mint(**({"run_id": "900", "run_attempt": 1} | one)) for one in claims]
    bearers += [issuer.mint(repository=L2, run_id="9" * 5_000, run_attempt=1), "ootk_0123456789ab_x"]
    report = report_body(sent, status="completed", conclusion="success", job="build", run_id="900", attempt=1)
    app = make_app(bot.context)
    requests = iter(list(Requests(app, bearers=bearers, report=report, seed=number).make(number)))
    capsys.readouterr()
    told, broken = Counter(), {}
    async with answering_at(app) as port:

        async def ask():
            async for what, status, body in answers(port, requests):
                told[status] += 1
                if status >= 500:
                    broken.setdefault(what, (status, body[:300]))

        await asyncio.gather(*(ask() for _ in range(AT_ONCE)))
    logged = "".join(capsys.readouterr())
    assert broken == {}
    assert told.total() > 0.99 * number, "each was answered, but for those that ended their connection"
    assert told[200] > number / 10, f"{told}: the addresses are there"
    assert len(logged) < LOG_LIMIT
