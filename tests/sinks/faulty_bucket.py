"""A bucket of S3 on loopback that fails as it is told to: slow, busy, cut off, forbidden, gone."""

from __future__ import annotations

import asyncio
import contextlib

from aiohttp import web

from tests.evidence.collect.bucket import NAME

ERROR = "<?xml version='1.0'?><Error><Code>{}</Code><Message>{}</Message></Error>"


class FaultyBucket:
    """What it holds, and how it fails."""

    def __init__(self):
        self.objects: dict[str, bytes] = {}
        self.calls = 0
        self.asked = asyncio.Event()
        self.fault = ""
        self.refused = ""  # a part of keys that are refused for good

    async def handle(self, request):
        self.calls += 1
        self.asked.set()
        key = request.match_info["key"]
        if self.fault == "busy":
            return self._error(503, "SlowDown", "Please reduce your request rate.")
        if self.fault == "forbidden":
            return self._error(403, "AccessDenied", "Access Denied")
        if self.fault == "expired":
            return self._error(400, "ExpiredToken", "The provided token has expired.")
        if self.fault == "gone":
            return self._error(404, "NoSuchBucket", "The specified bucket does not exist")
        if self.fault == "slow":
            await asyncio.sleep(30)
        if self.refused and self.refused in key:
            return self._error(400, "KeyTooLongError", "Your key is too long")
        return await self._answer(request, key)

    async def _answer(self, request, key):
        if request.method == "PUT":
            body = await request.read()
            if request.headers.get("If-None-Match") == "*" and key in self.objects:
                return self._error(412, "PreconditionFailed", "it is there")
            self.objects[key] = body
            if self.fault == "cut":  # after it was stored
                request.transport.close()
            return web.Response(headers={"ETag": '"x"'})
        if request.method == "DELETE":
            self.objects.pop(key, None)
            return web.Response(status=204)
        if key not in self.objects:
            return self._error(404, "NoSuchKey", "The specified key does not exist.")
        headers = {"ETag": '"x"', "Last-Modified": "Mon, 21 Sep 2026 10:00:00 GMT"}
        return web.Response(body=self.objects[key], headers=headers)

    def _error(self, status, code, words):
        return web.Response(status=status, text=ERROR.format(code, words), content_type="application/xml")


@contextlib.asynccontextmanager
async def serving():
    """Serve it; yields it, with the variables under which it is found."""
    bucket = FaultyBucket()
    app = web.Application(client_max_size=2**26)
    app.router.add_route("*", f"/{NAME}/{{key:.*}}", bucket.handle)
    runner = web.AppRunner(app, access_log=None, auto_decompress=False, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    bucket.variables = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "a-key",
        "AWS_SECRET_ACCESS_KEY": "a secret",
        "AWS_REGION": "us-east-1",
    }
    try:
        yield bucket
    finally:
        await runner.cleanup()
