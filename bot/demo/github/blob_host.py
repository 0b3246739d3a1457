"""GitHub's other host: logs and artifacts under signed addresses that are valid for a minute, without credentials."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import Callable

    from bot.demo.github.faults import Fault
    from bot.demo.github.state import GitHubState

VALID = 60_000  # milliseconds
RANGE = re.compile(r"bytes=(\d+)-(\d*)|bytes=-(\d+)")
Content = tuple[bytes, str]  # and its type


class BlobHost:
    """Serves what it was given, by name, to callers that know a signed address.

    Faults apply with the method `BLOB` and the blob's path. `after` with `drop` sends half of the content and closes
    the connection.
    """

    def __init__(self, state: GitHubState, take_fault: Callable[[str, str], Fault | None]) -> None:
        self._state = state
        self._take_fault = take_fault
        self._key = secrets.token_bytes(16)
        self._contents: dict[str, Content] = {}
        self._runner: web.AppRunner | None = None
        self.url = ""
        self.requests: list[web.BaseRequest] = []  # oldest first

    async def start(self) -> None:
        """Listen on a port of its own."""
        application = web.Application()
        application.router.add_get("/blobs/{name:.+}", self._serve)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"

    async def stop(self) -> None:
        """Stop listening."""
        if self._runner:
            await self._runner.cleanup()
            self._runner = None

    def signed(self, name: str, content: bytes, kind: str) -> str:
        """Return an address of some content, valid for a minute."""
        self._contents[name] = (content, kind)
        until = self._state.now() + VALID
        query = urlencode({"se": until, "sig": self._signature(name, until)})
        return f"{self.url}/blobs/{name}?{query}"

    def _signature(self, name: str, until: int) -> str:
        return hmac.new(self._key, f"{name} {until}".encode(), hashlib.sha256).hexdigest()

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["name"]
        self.requests.append(request)
        fault = self._take_fault("BLOB", name)
        if fault and fault.delay:
            await self._state.clock.sleep(fault.delay)
        if fault and fault.status is not None and not fault.drop:
            return web.Response(status=fault.status, text=fault.text(), headers=fault.headers)
        if "Authorization" in request.headers:  # as Azure does: its own scheme is not ours
            return web.Response(status=400, text="InvalidAuthenticationInfo")
        until = request.query.get("se", "")
        signed = until.isdigit() and hmac.compare_digest(
            request.query.get("sig", ""), self._signature(name, int(until))
        )
        if not signed or int(until) < self._state.now():
            return web.Response(status=403, text="AuthenticationFailed")
        content, kind = self._contents[name]
        response = _part(request.headers.get("Range", ""), content, kind)
        if fault and fault.drop:
            return await _cut_off(request, response)
        return response


def _part(wanted: str, content: bytes, kind: str) -> web.Response:
    """Return the content, or the range of it that is wanted."""
    headers = {"Accept-Ranges": "bytes", "Content-Type": kind}
    found = RANGE.fullmatch(wanted)
    if not found:
        return web.Response(body=content, headers=headers)
    first, last, suffix = found.groups()
    start = max(len(content) - int(suffix), 0) if suffix else int(first)
    end = min(int(last) if last else len(content) - 1, len(content) - 1)
    if start >= len(content) or start > end:
        return web.Response(status=416, headers={"Content-Range": f"bytes */{len(content)}"})
    headers["Content-Range"] = f"bytes {start}-{end}/{len(content)}"
    return web.Response(status=206, body=content[start : end + 1], headers=headers)


async def _cut_off(request: web.Request, regular: web.Response) -> web.StreamResponse:
    """Send half of a response, then close the connection."""
    body = regular.body if isinstance(regular.body, bytes) else b""
    response = web.StreamResponse(status=regular.status)
    response.content_length = len(body)
    await response.prepare(request)
    await response.write(body[: len(body) // 2])
    if request.transport is not None:
        request.transport.close()
    return response
