"""Where does a call come from? The peer, or behind proxies we trust whoever the last of them heard it from."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiohttp import web

    from bot.parse import Network

ONE_SITE = 64  # bits of an IPv6 address that one subscriber holds: the rest is theirs to choose


def caller(request: web.Request, trusted: Sequence[Network]) -> str:
    """Return the caller's address, of IPv6 its /64.

    X-Forwarded-For is read from its end, and only as far as proxies we trust wrote it: what stands before is anybody's.
    """
    found = _read(request.remote or "")
    hops = ",".join(request.headers.getall("X-Forwarded-For", [])).split(",")
    while found is not None and hops and any(found in network for network in trusted):
        before = _read(hops.pop())
        if before is None:
            break
        found = before
    if isinstance(found, IPv6Address):
        return str(IPv6Network((found, ONE_SITE), strict=False))
    return str(found or request.remote or "")


def _read(text: str) -> IPv4Address | IPv6Address | None:
    """Return an address, also with a port, None for anything else; IPv4 in IPv6's clothes is IPv4."""
    text = text.strip()
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        found = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found
