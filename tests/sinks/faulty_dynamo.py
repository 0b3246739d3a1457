"""DynamoDB as moto has it, behind a server that fails as it is told to: busy, forbidden, or cut off after it wrote."""

from __future__ import annotations

import contextlib
import json

import aiohttp
from aiohttp import web

PREFIX = "com.amazonaws.dynamodb.v20120810#"
ANSWERS = {
    "busy": (500, "InternalServerError"),
    "throttled": (400, "ProvisionedThroughputExceededException"),
    "expired": (400, "ExpiredTokenException"),
    "unreadable": (400, "SerializationException"),
}


class FaultyDynamo:
    """How it fails, and where it is."""

    def __init__(self, address, session):
        self.fault = ""
        self.refused = ""  # a part of requests that are refused for good
        self.calls = 0
        self.address = ""
        self._behind = address
        self._session = session

    async def handle(self, request):
        self.calls += 1
        body = await request.read()
        fault = "unreadable" if self.refused and self.refused in body.decode() else self.fault
        if fault in ANSWERS:
            status, kind = ANSWERS[fault]
            return web.Response(
                status=status, text=json.dumps({"__type": PREFIX + kind, "message": "not now"})
            )
        headers = {name: value for name, value in request.headers.items() if name.lower() != "host"}
        async with self._session.post(self._behind, data=body, headers=headers) as answer:
            found = web.Response(body=await answer.read(), status=answer.status)
            found.headers["Content-Type"] = answer.headers["Content-Type"]
        if fault == "cut":  # after it was written
            request.transport.close()
        return found


@contextlib.asynccontextmanager
async def serving(address):
    """Serve it in front of a server; yields it."""
    async with aiohttp.ClientSession() as session:
        made = FaultyDynamo(address, session)
        app = web.Application(client_max_size=2**20)
        app.router.add_post("/", made.handle)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        made.address = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            yield made
        finally:
            await runner.cleanup()
