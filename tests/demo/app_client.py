"""A client of the simulated GitHub that acts as an App, and a receiver of the App's webhooks."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager

import jwt
from aiohttp import web

from bot.demo.github.auth import private_key

KEY = private_key()
SECRET = "It's a Secret to Everybody"
UPSTREAM = "octo-org/project"
HOUR = 3_600  # seconds

OUTPUT = {"title": "t", "summary": "s"}
ANNOTATION = {
    "path": "a.py", "start_line": 1, "end_line": 1, "annotation_level": "failure", "message": "wrong",
}  # fmt: skip
BUTTON = {"label": "Re-run", "description": "Run it again", "identifier": "again"}


class WebhookReceiver:
    """A webhook endpoint that keeps what it receives."""

    def __init__(self):
        self.received = []  # (headers, body)
        self.status = 202

    async def receive(self, request):
        self.received.append((dict(request.headers), await request.read()))
        return web.Response(status=self.status, text="received")

    @property
    def events(self):
        return [
            f"{headers['X-GitHub-Event']}.{json.loads(body).get('action')}" for headers, body in self.received
        ]


@asynccontextmanager
async def webhook_receiver():
    receiver = WebhookReceiver()
    app = web.Application(client_max_size=30_000_000)
    app.router.add_post("/hook", receiver.receive)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    receiver.url = f"http://127.0.0.1:{runner.addresses[0][1]}/hook"
    try:
        yield receiver
    finally:
        await runner.cleanup()


class AppClient:
    """A client that acts as an App on a simulated GitHub."""

    def __init__(self, github, clock, app, receiver, session):
        self.github, self.clock, self.app = github, clock, app
        self.receiver, self.session = receiver, session

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
        return self.github.state.installation(app or self.app, account)

    async def token(self, app=None, account="octo-org", **restrictions):
        app = app or self.app
        path = f"/app/installations/{self.installation(app, account).id}/access_tokens"
        status, body, _ = await self.call("POST", path, restrictions, token=self.jwt(app))
        assert status == 201, body
        return body["token"]

    async def call(self, method, path, body=None, *, token=None, headers=None):
        """Return status, body and headers of a request, made with an installation token by default."""
        token = await self.token() if token is None else token
        sent = {"Authorization": f"Bearer {token}"} | (headers or {})
        url = path if path.startswith("http") else self.github.api_url + path
        async with self.session.request(method, url, json=body, headers=sent) as answer:
            raw = await answer.read()
            is_json = answer.content_type == "application/json" and raw
            return answer.status, json.loads(raw) if is_json else raw, answer.headers


def check_run_body(pull, **more):
    return {"name": "oot / npu", "head_sha": pull.head_sha, **more}
