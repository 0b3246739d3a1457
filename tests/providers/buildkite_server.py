"""Buildkite's REST API on loopback, as its documents describe it: logs of jobs, and what a token may do.

https://buildkite.com/docs/apis/rest-api/jobs, https://buildkite.com/docs/apis/rest-api/limits
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field

from aiohttp import web

API_TOKEN = "an-api-token-of-buildkite"
JOB = "/v2/organizations/{organization}/pipelines/{pipeline}/builds/{number}/jobs/{job}"


@dataclass
class Buildkite:
    """The logs that there are, and what is answered in their place."""

    url: str = ""
    logs: dict[str, bytes] = field(default_factory=dict)  # by the job's id
    artifacts: dict[str, list] = field(default_factory=dict)  # by the job's id
    files: dict[str, bytes] = field(default_factory=dict)  # by the artifact's id
    # (status, headers) of the next requests; None: what they ask for
    answers: list = field(default_factory=list)
    scopes: tuple[str, ...] = ("read_build_logs",)
    store: str = ""  # the host that keeps logs, where that is another one; artifacts are always there
    store_answers: list = field(default_factory=list)  # its next statuses
    asked: list[str] = field(default_factory=list)  # paths
    tokens_at_store: list = field(default_factory=list)  # that came to that address

    def refuse(self, request):
        """The answer to a request that is not to be answered with what it asks for."""
        self.asked.append(request.path)
        if request.headers.get("Authorization") != f"Bearer {API_TOKEN}":
            return web.json_response({"message": "Authentication required."}, status=401)
        answer = self.answers.pop(0) if self.answers else None
        if answer is None:
            return None
        status, headers = answer
        return web.json_response({"message": "no"}, status=status, headers=headers)

    async def send_log(self, request):
        if refused := self.refuse(request):
            return refused
        job = request.match_info["job"]
        if job not in self.logs:
            return web.json_response({"message": "No log found"}, status=404)
        if self.store:
            raise web.HTTPFound(f"{self.store}/store/{job}")
        return web.Response(body=self.logs[job], content_type="text/plain", charset="utf-8")

    async def send_stored(self, request):
        self.tokens_at_store.append(request.headers.get("Authorization"))
        if self.store_answers:
            return web.Response(status=self.store_answers.pop(0))
        name = request.match_info["name"]
        return web.Response(body=self.logs.get(name) or self.files[name])

    async def list_artifacts(self, request):
        if refused := self.refuse(request):
            return refused
        assert request.query["per_page"] == "100"
        return web.json_response(self.artifacts.get(request.match_info["job"], []))

    async def send_artifact(self, request):
        if refused := self.refuse(request):
            return refused
        name = request.match_info["artifact"]
        if name not in self.files:
            return web.json_response({"message": "No artifact found"}, status=404)
        return web.json_response({"url": "..."}, status=302, headers={"Location": f"/store/{name}"})

    def leaves(self, job, path, content, *, identifier=None, state="finished"):
        """Have a job leave an artifact."""
        identifier = identifier or f"a-{len(self.files)}"
        listed = {
            "id": identifier,
            "job_id": job,
            "path": path,
            "state": state,
            "file_size": len(content or b""),
        }
        self.artifacts.setdefault(job, []).append(listed)
        if content is not None:
            self.files[identifier] = content

    async def describe_token(self, request):
        if request.headers.get("Authorization") != f"Bearer {API_TOKEN}":
            return web.json_response({"message": "Authentication required."}, status=401)
        return web.json_response({"uuid": "b63254c0", "scopes": list(self.scopes)})


@contextlib.asynccontextmanager
async def serving():
    """Run one."""
    made = Buildkite()
    app = web.Application()
    app.router.add_get(f"{JOB}/log.txt", made.send_log)
    app.router.add_get(f"{JOB}/artifacts", made.list_artifacts)
    app.router.add_get(f"{JOB}/artifacts/{{artifact}}/download", made.send_artifact)
    app.router.add_get("/store/{name}", made.send_stored)
    app.router.add_get("/v2/access-token", made.describe_token)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield made
    finally:
        await runner.cleanup()
