"""Where downloads and webhooks may lead. An address is parsed once: what was checked is what is connected to.

Parsers disagree about hosts: some take a full stop of other scripts for a dot, and so 127.0.0.1 for a name. Only ASCII
names and literal addresses pass. Names are checked again when they are resolved.
"""

from __future__ import annotations

import asyncio
import re
import socket
from ipaddress import ip_address
from typing import TYPE_CHECKING

from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import DefaultResolver
from yarl import URL

from bot.core.errors import OotbotError

if TYPE_CHECKING:
    from collections.abc import Iterable

ADDRESS = re.compile(r"[!-~]+")  # visible ASCII
NAME = re.compile(r"[a-z0-9_](?:[a-z0-9_.-]*[a-z0-9_])?", re.IGNORECASE)


class DownloadRefused(OotbotError):
    """The address must not be fetched, or what came is not what was promised."""


class AddressGuard:
    """Says which addresses may be fetched: public ones, and those inside a network of ours where they are allowed.

    Where nothing else is said, they are allowed if GITHUB_API_URL is one.
    """

    def __init__(
        self, *, own_port: int, proxy: str | None, api_url: str = "", internal: bool | None = None
    ) -> None:
        self._api = URL(api_url)
        self._own_port = own_port
        self._internal_allowed = internal
        self._proxy_host = URL(proxy).host if proxy else None

    async def parse(self, text: str) -> URL:
        """Return an address to connect to; raises DownloadRefused for one that must not be fetched."""
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
        """Whether an address is of GitHub's API."""
        return url.origin() == self._api.origin()

    def resolver(self) -> AbstractResolver:
        """Return a resolver of names that refuses what may not be fetched."""
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
        """Whether GITHUB_API_URL is inside a network of ours."""
        if self._internal_allowed is None:
            host = self._api.host or ""
            addresses = [host] if _is_literal(host) else await _addresses(host)
            self._internal_allowed = bool(addresses) and not any(map(_is_public, addresses))
        return self._internal_allowed


class _Guarded(AbstractResolver):
    """Resolves host names, and refuses those that lead where nothing may be fetched."""

    def __init__(self, guard: AddressGuard) -> None:
        self._resolver = DefaultResolver()
        self._guard = guard

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Return the addresses of a host; raises DownloadRefused when one of them may not be fetched."""
        found = await self._resolver.resolve(host, port, family)
        self._guard.check_resolved(host, port, [one["host"] for one in found])
        return found

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
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return []
    return [str(address[0]) for *_, address in found]


def _is_literal(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _is_public(address: str) -> bool:
    """Whether an address is on the public network; one inside another notation counts as what is inside."""
    found = ip_address(address.partition("%")[0])
    inner = getattr(found, "ipv4_mapped", None) or getattr(found, "sixtofour", None)
    return (inner or found).is_global and not found.is_multicast


def _is_of_this_machine(address: str) -> bool:
    """Whether an address is one of this machine's: only those can be bound."""
    found = ip_address(address.partition("%")[0])
    found = getattr(found, "ipv4_mapped", None) or found
    if found.is_loopback or found.is_unspecified:
        return True
    kind = socket.AF_INET if found.version == 4 else socket.AF_INET6
    try:
        with socket.socket(kind, socket.SOCK_DGRAM) as probe:
            probe.bind((str(found), 0))
    except OSError:
        return False
    return True
