"""Where does a test of the simulated GitHub sit? An App with its door, and a client that speaks for it."""

from __future__ import annotations

import json
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import jwt
from aiohttp import web

from bot.demo.github.keys import private_key

KEY = private_key()


SECRET = "It's a Secret to Everybody"


UPSTREAM = "octo-org/project"


HOUR = 3_600_000


@dataclass
class Hands:
    """A clock that stands still until a test turns it."""

    ms: int = field(default_factory=lambda: time.time_ns() // 1_000_000)

    def now(self):
        return self.ms

    async def sleep(self, seconds):
        self.ms += int(seconds * 1000)


class Listener:
    """An App's webhook door that keeps what it gets."""

    def __init__(self):
        self.got = []
        self.status = 202

    async def take(self, request):
        self.got.append((dict(request.headers), await request.read()))
        return web.Response(status=self.status, text="taken")

    @property
    def events(self):
        return [f"{headers['X-GitHub-Event']}.{json.loads(body).get('action')}" for headers, body in self.got]


@asynccontextmanager
async def listening():
    listener = Listener()
    app = web.Application(client_max_size=30_000_000)
    app.router.add_post("/hook", listener.take)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    listener.url = f"http://127.0.0.1:{runner.addresses[0][1]}/hook"
    try:
        yield listener
    finally:
        await runner.cleanup()


class Desk:
    """Where a test sits: a GitHub, an App with its door, and a client that speaks for the App."""

    def __init__(self, github, clock, app, listener, session):
        self.github, self.clock, self.app = github, clock, app
        self.listener, self.session = listener, session
        self.tokens = {}

    def jwt(self, app=None, key=None, algorithm="RS256", **changes):
        now = self.clock.now() // 1000
        claims = {"iat": now - 60, "exp": now + 540, "iss": str((app or self.app).app_id)}
        claims |= changes
        return jwt.encode(
            {name: value for name, value in claims.items() if value is not None},
            key or (app or self.app).private_key_pem,
            algorithm=algorithm,
        )

    def installation(self, app=None, account="octo-org"):
        return self.github.world.installation(app or self.app, account)

    async def token(self, app=None, account="octo-org", **narrowed):
        app = app or self.app
        path = f"/app/installations/{self.installation(app, account).id}/access_tokens"
        status, body, _ = await self.call("POST", path, narrowed, token=self.jwt(app))
        assert status == 201, body
        return body["token"]

    async def call(self, method, path, body=None, *, token=None, headers=None):
        """Return status, body and headers of one request, with an installation token by default."""
        token = await self.token() if token is None else token
        sent = {"Authorization": f"Bearer {token}"} | (headers or {})
        url = path if path.startswith("http") else self.github.api_url + path
        async with self.session.request(method, url, json=body, headers=sent) as answer:
            raw = await answer.read()
            is_json = answer.content_type == "application/json" and raw
            return answer.status, json.loads(raw) if is_json else raw, answer.headers


def run_of(pull, **more):
    return {"name": "oot / npu", "head_sha": pull.head_sha, **more}


OUTPUT = {"title": "t", "summary": "s"}


NOTE = {
    "path": "a.py",
    "start_line": 1,
    "end_line": 1,
    "annotation_level": "failure",
    "message": "wrong",
}


BUTTON = {"label": "Re-run", "description": "Run it again", "identifier": "again"}
