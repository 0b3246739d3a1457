"""The client's IP address: the peer, or the address that trusted proxies forwarded."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiohttp import web

    from bot.core.setting_types import Network

SUBSCRIBER_BITS = 64  # of an IPv6 address: subscribers choose the rest themselves


def client_ip(request: web.Request, trusted: Sequence[Network]) -> str:
    """Return the client's address, of IPv6 its /64.

    X-Forwarded-For is read from its end, only as far as trusted proxies wrote it: senders can forge the rest.
    """
    found, _ = _walk(request, trusted)
    if isinstance(found, IPv6Address):
        return str(IPv6Network((found, SUBSCRIBER_BITS), strict=False))
    return str(found or request.remote or "")


def is_shared(request: web.Request, trusted: Sequence[Network]) -> bool:
    """Whether that address says that it forwards for another one: a proxy that is not listed, or a forgery."""
    return bool(_walk(request, trusted)[1])


def _walk(
    request: web.Request, trusted: Sequence[Network]
) -> tuple[IPv4Address | IPv6Address | None, list[str]]:
    """Return the first address from the end that is no trusted proxy's, and the hops before it."""
    found = _parse_address(request.remote or "")
    hops = ",".join(request.headers.getall("X-Forwarded-For", [])).split(",")
    while found is not None and hops and any(found in network for network in trusted):
        before = _parse_address(hops[-1])
        if before is None:
            break
        found = before
        hops.pop()
    return found, [hop for hop in hops if hop.strip()]


def _parse_address(text: str) -> IPv4Address | IPv6Address | None:
    """Return an address, with or without a port, None for anything else; IPv4-mapped IPv6 is IPv4."""
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
