"""Downloads from where GitHub keeps logs and artifacts: without credentials, to a file, within limits.

An address is parsed once: what was checked is what is connected to. Webhooks that we send are held to the same rule.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import socket
import zlib
from dataclasses import dataclass
from ipaddress import ip_address
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import urljoin

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import DefaultResolver
from yarl import URL

from bot.core.errors import OotbotError, RetryLater, in_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from bot.github.client import Location

ADDRESS = re.compile(r"[!-~]+")  # visible ASCII
NAME = re.compile(r"[a-z0-9_](?:[a-z0-9_.-]*[a-z0-9_])?", re.IGNORECASE)
CONNECT, SILENCE, WHOLE = 5, 30, 600  # seconds: to connect, without a byte, in all
PIECE = 256 * 1024  # bytes hashed and written at once, in a thread
MOVED = frozenset({301, 302, 303, 307, 308})
INFLATED = {
    "": 0,
    "identity": 0,
    "gzip": 31,
    "x-gzip": 31,
    "deflate": 15,
}  # Content-Encoding -> zlib's window
EXPIRED = frozenset({403, 401})  # of a signed address: GitHub gives another one


class DownloadRefused(OotbotError):
    """The address must not be fetched, or what came is not what was promised."""


class TooLarge(OotbotError):
    """The content is larger than allowed; `size` is what was promised or has arrived so far."""

    def __init__(self, size: int, most: int) -> None:
        super().__init__(f"{size:,} bytes, limit {most:,}")
        self.size = size


class Gone(OotbotError):
    """The store has no such content."""


@dataclass(frozen=True, kw_only=True)
class Download:
    """What was downloaded."""

    size: int
    sha256: str


class AddressGuard:
    """Decides which addresses may be fetched: public ones, and those inside our network where that is allowed.

    By default they are allowed if GITHUB_API_URL is one.
    """

    def __init__(
        self, *, own_port: int, proxy: str | None, api_url: str = "", internal: bool | None = None
    ) -> None:
        self._api = URL(api_url)
        self._own_port = own_port
        self._internal_allowed = internal
        self._proxy_host = URL(proxy).host if proxy else None

    async def parse(self, text: str) -> URL:
        """Parse an address to connect to; raises DownloadRefused for one that must not be fetched."""
        url = _parse(text)
        host, internal = url.host or "", await self._is_internal_allowed()
        if url.scheme != "https" and not (url.scheme == "http" and internal):
            raise DownloadRefused(f"it leads to {url.scheme[:10]}: only https is followed")
        if _is_literal(host):
            self._check_resolved(host, url.port or 0, [host])
        elif (
            ":" in host or host.replace(".", "").isdigit()
        ):  # such as 127.1: aiohttp would not ask the resolver
            raise DownloadRefused("it leads to something that is no plain address")
        elif host == "localhost" and url.port == self._own_port:
            raise DownloadRefused("it leads to this bot itself")
        return url

    def is_api(self, url: URL) -> bool:
        """Whether an address belongs to GitHub's API."""
        return url.origin() == self._api.origin()

    def resolver(self) -> AbstractResolver:
        """Return a resolver that refuses hosts that may not be fetched."""
        return _Guarded(self)

    def check_resolved(self, host: str, port: int, addresses: Iterable[str]) -> None:
        """Raise DownloadRefused where a name leads to an address that may not be fetched."""
        if host != self._proxy_host:
            self._check_resolved(host, port, addresses)

    def _check_resolved(self, host: str, port: int, addresses: Iterable[str]) -> None:
        for address in addresses:
            if not (self._internal_allowed or _is_public(address)):
                raise DownloadRefused(f"it leads to {host}, inside our own network")
            if port == self._own_port and _is_of_this_machine(address):
                raise DownloadRefused("it leads to this bot itself")

    async def _is_internal_allowed(self) -> bool:
        """Whether GITHUB_API_URL is inside our network."""
        if self._internal_allowed is None:
            host = self._api.host or ""
            addresses = [host] if _is_literal(host) else await _addresses(host)
            self._internal_allowed = bool(addresses) and not any(map(_is_public, addresses))
        return self._internal_allowed


class Unanswered(RetryLater):
    """The store did not send the content; `status` is its answer's."""

    def __init__(
        self,
        response: aiohttp.ClientResponse,
        message: str,
        *,
        after: float | None = None,
        by_api: bool = False,
    ) -> None:
        super().__init__(message, after=_asked_wait(response) or after)
        self.status = response.status
        self.by_api = by_api  # and not by a host that it names


class Downloads:
    """Downloads within what GITHUB_API_URL allows."""

    def __init__(self, *, api_url: str, own_port: int, proxy: str | None, seconds: float = WHOLE) -> None:
        self._guard = AddressGuard(api_url=api_url, own_port=own_port, proxy=proxy)
        self._http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(resolver=self._guard.resolver(), limit=16),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            proxy=proxy,
            timeout=aiohttp.ClientTimeout(
                total=seconds, connect=CONNECT, sock_connect=CONNECT, sock_read=SILENCE
            ),
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._http.close()

    async def fetch(self, location: Location, into: Path, *, most: int) -> Download:
        """Download to a file; raises DownloadRefused, TooLarge, Gone, or RetryLater."""
        try:
            async with await self._open(location, {}) as response:
                if response.status != 200:
                    raise Unanswered(response, f"the store answered {response.status}")
                with into.open("wb") as file:
                    return await self._receive(response, file, most)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise RetryLater(f"the download broke off: {in_words(error)}"[:300]) from error

    async def fetch_range(self, location: Location, start: int, end: int) -> tuple[bytes, int] | None:
        """Return the bytes from `start` to before `end` and the whole size; None where the store has no ranges.

        A negative `start` counts from the end, and `end` is ignored then.
        """
        wanted = f"bytes={start}" if start < 0 else f"bytes={start}-{end - 1}"
        most = -start if start < 0 else end - start
        try:
            async with await self._open(location, {"Range": wanted}) as response:
                if response.status != 206 or response.headers.get("Content-Encoding", "") not in {
                    "",
                    "identity",
                }:
                    return None
                body = bytearray()
                async for piece in response.content.iter_any():
                    body += piece
                    if len(body) > most:
                        raise DownloadRefused("the store sent more than the range that was asked for")
                total = response.headers.get("Content-Range", "").rpartition("/")[2]
        except (aiohttp.ClientError, TimeoutError) as error:
            raise RetryLater(f"the download broke off: {in_words(error)}"[:300]) from error
        return (bytes(body), int(total)) if total.isascii() and total.isdigit() else None

    async def _open(self, location: Location, headers: Mapping[str, str]) -> aiohttp.ClientResponse:
        """Return the response of the content's host, one redirect further at most."""
        text, sent = location.url, {**headers, **location.headers}
        for last in (False, True):
            url = await self._guard.parse(text)
            if sent.keys() - headers.keys() and not self._guard.is_api(url):
                raise DownloadRefused("our token goes to the API only")
            response = await self._http.get(url, headers=sent, allow_redirects=False)
            if response.status not in MOVED:
                break
            response.release()
            if last or not (moved_to := response.headers.get("Location")):
                raise DownloadRefused("it leads from one address to the next")
            text, sent = urljoin(text, moved_to), dict(headers)
        if response.status < 300:
            return response
        response.release()
        by_api = self._guard.is_api(url)
        if response.status in {404, 410}:
            raise Gone(f"the store answered {response.status}")
        if response.status == 416:
            raise DownloadRefused("the store does not have the range that it promised")
        if response.status in EXPIRED:
            words = f"the address has expired: the store answered {response.status}"
            raise Unanswered(response, words, after=1, by_api=by_api)
        raise Unanswered(response, f"the store answered {response.status}", by_api=by_api)

    async def _receive(self, response: aiohttp.ClientResponse, file: IO[bytes], most: int) -> Download:
        encoding = response.headers.get("Content-Encoding", "").strip().lower()
        if encoding not in INFLATED:
            raise DownloadRefused(f"it is encoded as {encoding[:20]!r}")
        window = INFLATED[encoding]
        promised = response.content_length
        if not window and promised is not None and promised > most:
            raise TooLarge(promised, most)
        sink = _Sink(file, most, zlib.decompressobj(window) if window else None)
        waiting = bytearray()
        async for piece in response.content.iter_any():
            waiting += piece
            if len(waiting) >= PIECE:
                await asyncio.to_thread(sink.write, bytes(waiting))
                waiting.clear()
        await asyncio.to_thread(sink.write, bytes(waiting))
        return sink.finish()


class _Guarded(AbstractResolver):
    """Resolves host names, and refuses those that lead where nothing may be fetched."""

    def __init__(self, guard: AddressGuard) -> None:
        self._resolver = DefaultResolver()
        self._guard = guard

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Return the addresses of a host; raises DownloadRefused when one of them may not be fetched."""
        resolved = await self._resolver.resolve(host, port, family)
        self._guard.check_resolved(host, port, [answer["host"] for answer in resolved])
        return resolved

    async def close(self) -> None:
        """Close the resolver."""
        await self._resolver.close()


def _parse(text: str) -> URL:
    if not ADDRESS.fullmatch(text) or "\\" in text:
        raise DownloadRefused("it leads to something that is no plain address")
    try:
        url = URL(text, encoded=True)  # signed addresses stay as they are
        port = url.port
    except ValueError:
        raise DownloadRefused("it leads to something that is no address") from None
    host = url.host or ""
    named = _is_literal(host) or NAME.fullmatch(host)
    if not named or url.raw_host != host or port == 0 or url.user is not None or url.password is not None:
        raise DownloadRefused("it leads to something that is no plain address")
    return url


async def _addresses(host: str) -> list[str]:
    try:
        answers = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return []
    return [str(address[0]) for *_, address in answers]


def _is_literal(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _is_public(address: str) -> bool:
    """Whether an address is on the public network; an embedded address counts instead of its wrapping."""
    parsed = ip_address(address.partition("%")[0])
    inner = getattr(parsed, "ipv4_mapped", None) or getattr(parsed, "sixtofour", None)
    return (inner or parsed).is_global and not parsed.is_multicast


def _is_of_this_machine(address: str) -> bool:
    """Whether an address belongs to this machine: only those can be bound."""
    parsed = ip_address(address.partition("%")[0])
    parsed = getattr(parsed, "ipv4_mapped", None) or parsed
    if parsed.is_loopback or parsed.is_unspecified:
        return True
    kind = socket.AF_INET if parsed.version == 4 else socket.AF_INET6
    try:
        with socket.socket(kind, socket.SOCK_DGRAM) as probe:
            probe.bind((str(parsed), 0))
    except OSError:
        return False
    return True


def _asked_wait(response: aiohttp.ClientResponse) -> float | None:
    """Return how many seconds a store asks us to wait."""
    given = (response.headers.get(name, "") for name in ("Retry-After", "RateLimit-Reset"))
    return next((float(text) for text in given if text.isascii() and text.isdigit() and len(text) < 5), None)


class _Sink:
    """Writes what arrives to a file, inflated and hashed; raises TooLarge."""

    def __init__(self, file: IO[bytes], most: int, inflate: Any) -> None:
        self._file = file
        self._most = most
        self._inflate = inflate
        self._digest = hashlib.sha256()
        self._size = 0

    def write(self, piece: bytes) -> None:
        """Write a piece."""
        if self._inflate is None:
            self._keep(piece)
            return
        try:
            while piece:
                self._keep(self._inflate.decompress(piece, PIECE * 4))
                piece = self._inflate.unconsumed_tail
        except zlib.error as error:
            raise DownloadRefused(f"its encoding is damaged: {error}") from error

    def finish(self) -> Download:
        """Return the totals of what was written."""
        if self._inflate is not None and not self._inflate.eof:
            raise RetryLater("the download broke off: its encoding has no end")
        self._file.flush()
        return Download(size=self._size, sha256=self._digest.hexdigest())

    def _keep(self, plain: bytes) -> None:
        self._size += len(plain)
        if self._size > self._most:
            raise TooLarge(self._size, self._most)
        self._digest.update(plain)
        self._file.write(plain)
