"""The client's address: the peer, or what trusted proxies forwarded."""

import pytest
from aiohttp.test_utils import make_mocked_request
from multidict import CIMultiDict

from bot.core import setting_types
from bot.web.limits import client_ip

PROXIES = setting_types.networks("10.0.0.0/8, fd00::/8")
CALLERS = {
    "nobody between": ("198.51.100.7", [], "198.51.100.7"),
    "a header of its own making": ("198.51.100.7", ["192.0.2.1"], "198.51.100.7"),
    "one proxy": ("10.0.0.1", ["198.51.100.7"], "198.51.100.7"),
    "two proxies": ("10.0.0.1", ["198.51.100.7, 10.2.3.4"], "198.51.100.7"),
    "two headers": ("10.0.0.1", ["192.0.2.1", "198.51.100.7"], "198.51.100.7"),
    "lies before the proxy's word": ("10.0.0.1", ["10.0.0.2, 192.0.2.1, 198.51.100.7"], "198.51.100.7"),
    "a proxy that says nothing": ("10.0.0.1", [], "10.0.0.1"),
    "a proxy that says nonsense": ("10.0.0.1", ["unknown"], "10.0.0.1"),
    "an address with a port": ("10.0.0.1", ["198.51.100.7:4711"], "198.51.100.7"),
    "IPv6": ("2001:db8:1:2:3:4:5:6", [], "2001:db8:1:2::/64"),
    "IPv6 behind a proxy, with a port": ("fd00::1", ["[2001:db8:1:2::9]:4711"], "2001:db8:1:2::/64"),
    "IPv4 in IPv6": ("::ffff:198.51.100.7", [], "198.51.100.7"),
    "a proxy as IPv4 in IPv6": ("::ffff:10.0.0.1", ["198.51.100.7"], "198.51.100.7"),
}


@pytest.mark.parametrize(("peer", "forwarded", "expected"), CALLERS.values(), ids=CALLERS)
def test_the_caller_is_who_the_last_trusted_proxy_heard_from(peer, forwarded, expected):
    headers = [("X-Forwarded-For", one) for one in forwarded]
    request = make_mocked_request("POST", "/", headers=CIMultiDict(headers)).clone(remote=peer)
    assert client_ip(request, PROXIES) == expected
