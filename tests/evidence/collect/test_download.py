"""Downloads: where they may lead, how much they may bring, and that no credential goes along."""

from __future__ import annotations

import gzip
import hashlib
import socket
import zlib

import pytest
from aiohttp import web

from bot.core.errors import RetryLater
from bot.github.client import Location
from bot.github.download import DownloadRefused, Downloads, Gone, TooLarge
from tests.harness import UPSTREAM

CONTENT = bytes(range(256)) * 40


class Site:
    """A site on loopback whose answers a test chooses."""

    def __init__(self):
        self.answers = {}
        self.requests = []

    async def answer(self, request):
        self.requests.append(request)
        return self.answers[request.path](request)


@pytest.fixture
async def site(aiohttp_server):
    made = Site()
    app = web.Application()
    app.router.add_get("/{rest:.*}", made.answer)
    server = await aiohttp_server(app)
    made.url = f"http://127.0.0.1:{server.port}"
    return made


@pytest.fixture
async def inside(site):
    """Downloads of a bot whose GITHUB_API_URL is on loopback."""
    made = Downloads(api_url="http://127.0.0.1:1/api/v3", own_port=8080, proxy=None)
    yield made
    await made.close()


@pytest.fixture
async def outside():
    """Downloads of a bot on github.com."""
    made = Downloads(api_url="https://8.8.8.8", own_port=8080, proxy=None)
    yield made
    await made.close()


def responding(body=CONTENT, status=200, **headers):
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda _request: web.Response(body=body, status=status, headers=named)


async def test_content_arrives_whole_with_its_digest_and_without_credentials(inside, site, tmp_path):
    site.answers["/a"] = responding()
    got = await inside.fetch(Location(url=site.url + "/a"), tmp_path / "file", most=len(CONTENT))
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert (got.size, got.sha256) == (len(CONTENT), hashlib.sha256(CONTENT).hexdigest())
    assert "Authorization" not in site.requests[0].headers
    assert "Cookie" not in site.requests[0].headers


@pytest.mark.parametrize("encoding", ["identity", "gzip", "deflate"])
async def test_an_encoding_is_undone_by_us_within_the_limit(inside, site, tmp_path, encoding):
    body = {"identity": CONTENT, "gzip": gzip.compress(CONTENT), "deflate": zlib.compress(CONTENT)}[encoding]
    site.answers["/a"] = responding(body, Content_Encoding=encoding)
    where = Location(url=site.url + "/a")
    got = await inside.fetch(where, tmp_path / "file", most=len(CONTENT))
    assert got.sha256 == hashlib.sha256(CONTENT).hexdigest()
    with pytest.raises(TooLarge):
        await inside.fetch(where, tmp_path / "file", most=len(CONTENT) - 1)


async def test_a_bomb_in_an_encoding_ends_at_the_limit(inside, site, tmp_path):
    site.answers["/a"] = responding(gzip.compress(bytes(64 * 1024 * 1024)), Content_Encoding="gzip")
    with pytest.raises(TooLarge):
        await inside.fetch(Location(url=site.url + "/a"), tmp_path / "file", most=1024 * 1024)
    assert (tmp_path / "file").stat().st_size <= 1024 * 1024


@pytest.mark.parametrize("chunked", [False, True])
async def test_one_byte_over_the_limit_is_too_large(inside, site, tmp_path, chunked):
    def answer(request):
        response = web.Response(body=CONTENT)
        if chunked:
            response.enable_chunked_encoding()
        return response

    site.answers["/a"] = answer
    where = Location(url=site.url + "/a")
    assert (await inside.fetch(where, tmp_path / "file", most=len(CONTENT))).size == len(CONTENT)
    with pytest.raises(TooLarge) as raised:
        await inside.fetch(where, tmp_path / "file", most=len(CONTENT) - 1)
    assert raised.value.size == len(CONTENT)


@pytest.mark.parametrize(
    ("status", "error"),
    [(404, Gone), (410, Gone), (403, RetryLater), (500, RetryLater), (503, RetryLater), (204, RetryLater)],
)
async def test_other_answers(inside, site, tmp_path, status, error):
    site.answers["/a"] = responding(b"", status)
    with pytest.raises(error):
        await inside.fetch(Location(url=site.url + "/a"), tmp_path / "file", most=10)


async def test_one_redirect_is_followed_without_our_token_and_no_second_one(inside, site, tmp_path):
    site.answers["/a"] = responding(b"", 302, Location="/b")
    site.answers["/b"] = responding()
    api = Downloads(api_url=site.url, own_port=8080, proxy=None)
    where = Location(url=site.url + "/a", headers={"authorization": "Bearer ours"})
    await api.fetch(where, tmp_path / "file", most=len(CONTENT))
    await api.close()
    assert [request.headers.get("Authorization") for request in site.requests] == ["Bearer ours", None]
    site.answers["/b"] = responding(b"", 302, Location="/a")
    with pytest.raises(DownloadRefused):
        await inside.fetch(Location(url=site.url + "/a"), tmp_path / "file", most=10)
    with pytest.raises(DownloadRefused, match="our token"):
        await inside.fetch(where, tmp_path / "file", most=10)


async def test_the_store_is_reached_through_the_proxy(site, tmp_path):
    """The proxy knows where the store is; we could not even resolve its name."""
    site.answers["/a"] = responding()
    through = Downloads(api_url="http://127.0.0.1:1/api/v3", own_port=8080, proxy=site.url)
    got = await through.fetch(Location(url="http://store.invalid/a"), tmp_path / "file", most=len(CONTENT))
    await through.close()
    assert (got.size, (tmp_path / "file").read_bytes()) == (len(CONTENT), CONTENT)
    (asked,) = site.requests
    assert asked.raw_path == "http://store.invalid/a"


@pytest.mark.parametrize(
    "url",
    [
        "http://93.184.216.34/x",
        "https://127.0.0.1/x",
        "https://127.1/x",
        "https://2130706433/x",
        "https://0x7f000001/x",
        "https://localhost/x",
        "https://[::1]/x",
        "https://[::ffff:127.0.0.1]/x",
        "https://169.254.169.254/latest/meta-data",
        "https://10.0.0.1/x",
        "https://192.168.1.1/x",
        "https://[fe80::1]/x",
        "https://[fd00::1]/x",
        "https://0.0.0.0/x",
        "https://user:word@93.184.216.34/x",
        "https://127\u30020\u30020\u30021/x",  # full stops of other scripts, which IDNA makes dots of
        "https://127\uff0e0\uff0e0\uff0e1/x",
        "https://127\uff610\uff610\uff611/x",
        "https://\u24db\u24deca\u24dbhost/x",
        "https://m\u00fcnchen.example/x",
        "https://127%2e0%2e0%2e1/x",
        "https://a\\@127.0.0.1/x",
        "https://93.184.216.34 .example/x",
        "https://93.184.216.34:0/x",
        "ftp://93.184.216.34/x",
        "file:///etc/passwd",
        "https://",
        "https://93.184.216.34:99999/x",
    ],
)
async def test_from_github_com_nothing_leads_inside_or_to_plain_http(outside, tmp_path, url):
    with pytest.raises((DownloadRefused, RetryLater)) as raised:
        await outside.fetch(Location(url=url), tmp_path / "file", most=10)
    assert isinstance(raised.value, DownloadRefused) or "0x7f" in url  # no resolver has to know that spelling


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "0.0.0.0"])
async def test_nothing_leads_to_this_bot(inside, tmp_path, host):
    with pytest.raises(DownloadRefused, match="this bot itself"):
        await inside.fetch(Location(url=f"http://{host}:8080/metrics"), tmp_path / "file", most=10)


def own_address():
    """Return an address of this machine that is not loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # sends nothing
        return probe.getsockname()[0]


@pytest.mark.parametrize("host", [own_address, socket.gethostname])
async def test_nothing_leads_to_this_bot_by_an_address_of_its_machine(inside, tmp_path, host):
    try:
        name = host()
        socket.getaddrinfo(name, 8080)
    except OSError:
        pytest.skip("this machine has no network, or no name of its own")
    where = Location(url=f"http://{name}:8080/metrics")
    with pytest.raises(DownloadRefused, match="this bot itself"):
        await inside.fetch(where, tmp_path / "file", most=10)


async def test_ranges_and_stores_without_them(inside, site):
    def part(request):
        start, _, end = request.headers["Range"].removeprefix("bytes=").partition("-")
        first, last = (len(CONTENT) - int(end), len(CONTENT) - 1) if not start else (int(start), int(end))
        headers = {"Content-Range": f"bytes {first}-{last}/{len(CONTENT)}"}
        return web.Response(status=206, body=CONTENT[first : last + 1], headers=headers)

    site.answers |= {"/a": part, "/plain": responding()}
    where = Location(url=site.url + "/a")
    assert await inside.fetch_range(where, 10, 30) == (CONTENT[10:30], len(CONTENT))
    assert await inside.fetch_range(where, -16, 0) == (CONTENT[-16:], len(CONTENT))
    assert await inside.fetch_range(Location(url=site.url + "/plain"), 0, 10) is None
    site.answers["/a"] = responding(CONTENT, 206, Content_Range="bytes 0-9/100")
    with pytest.raises(DownloadRefused):
        await inside.fetch_range(where, 0, 10)


@pytest.mark.logic
async def test_a_log_is_where_github_says_for_a_minute(github, bot, clock, tmp_path):
    run = await github.start_run(UPSTREAM, event="push")
    job = await github.start_job(run, "build")
    client = bot.context.github.client(UPSTREAM, actions="read")
    path = client.path(f"actions/jobs/{job.id}/logs")
    await github.finish_job(job, "failure", log="2026-11-22T10:00:00.0000000Z broken\n")
    where = await client.location(path)
    downloads = Downloads(api_url=github.api_url, own_port=1, proxy=None)
    await downloads.fetch(where, tmp_path / "log", most=1000)
    assert (tmp_path / "log").read_text().endswith("broken\n")
    assert "sig=" not in repr(where)
    clock.advance(61)
    with pytest.raises(RetryLater, match="expired"):
        await downloads.fetch(where, tmp_path / "log", most=1000)
    await downloads.close()
