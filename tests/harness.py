"""The whole bot on loopback, for tests: real HTTP, real store, the demo's GitHub and issuer, a clock of its own."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import json
import socket
import uuid
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import aiohttp
import sqlalchemy as sa
from aiohttp import web, web_app
from cryptography.hazmat.primitives.asymmetric import rsa

from bot.app import make_app, make_context, make_worker, timetable
from bot.core.setting_types import IssuerConfig
from bot.core.settings import Settings
from bot.db import store
from bot.db.rows import metadata
from bot.demo.github import SimulatedGitHub
from bot.demo.issuer import Issuer
from bot.features import FEATURES
from bot.ingest import inbox
from bot.ingest.tables import delivery
from bot.jobs.settings import CollectSettings
from bot.queue.tasks import task
from tests import memoized, secret_markers
from tests.contract.recorder import recorded

PERIODIC = frozenset(timetable(SimpleNamespace(pulls=False), FEATURES))  # kinds of tasks
DUE = (
    sa.select(delivery.c.due_at)
    .where(delivery.c.state == "stored")
    .union_all(
        sa.select(task.c.due_at).where(task.c.state == "waiting", task.c.kind.not_in(sorted(PERIODIC)))
    )
)
UPSTREAM = "pytorch/pytorch"
UPSTREAM_ID = 1_000_003  # at the simulated GitHub: a name of the settings means this repository
SECRET = "a webhook secret"
L1, L2, L3, L4 = "watch/l1", "org/l2-sim", "org/npu-backend", "org/tpu-backend"
ALLOWLIST = f"""
L1: [{L1}]
L2: [{{{L2}: "alice, bob"}}]
L3: {{npu: {{{L3}: {{oncalls: [carol], answers: all}}}}}}
L4:
  tpu: {{{L4}: [dave]}}
"""


START = 1_790_000_000_000  # epoch milliseconds
running_threads = store.Threads  # of the bots; tests/conftest.py chooses others


class ManualClock:
    """Time that passes when somebody sleeps or says so."""

    def __init__(self, at: int = START):
        self.at = at

    def now(self) -> int:
        return self.at

    async def sleep(self, seconds: float) -> None:
        self.at += round(seconds * 1000)
        await asyncio.sleep(0)

    def advance(self, seconds: float) -> None:
        self.at += round(seconds * 1000)


class Bot:
    """A running bot; `send` and `report` come in through the front door, `settle` lets it work."""

    def __init__(self, *, context, worker, url, http, github, issuer, app, clock):
        self.context = context
        self.worker = worker
        self.url = url
        self.http = http
        self.github = github
        self.issuer = issuer
        self.app = app
        self.clock = clock
        self.store = context.store

    async def settle(self, horizon: float = 0.0) -> None:
        """Work until nothing is due within `horizon` seconds; time passes as far as the waiting work asks."""
        end = self.clock.now() + round(horizon * 1000)
        while True:
            while await self.worker.step():
                await self.github.settled()
            coming = [at for at in await self._due() if at <= end]
            if not coming:
                return
            self.clock.at = max(self.clock.at, min(coming))

    async def _due(self):
        """When each stored delivery and each waiting task is due."""
        async with self.store.read() as tx:
            return [row["due_at"] for row in await tx.rows(DUE)]

    async def wait(self, seconds: float) -> None:
        """Let that much time pass, working all the way."""
        end = self.clock.now() + round(seconds * 1000)
        await self.settle(seconds)
        self.clock.at = max(self.clock.at, end)
        await self.settle()

    async def list_backends(self, text: str) -> None:
        """Put another allowlist in force."""
        Path(self.context.settings.allowlist).write_text(text)
        self.clock.advance(61)
        await self.settle()

    async def rows(self, table: str) -> list[dict]:
        await self.context.intake.move_arrived()
        async with self.store.read() as tx:
            return await tx.rows(sa.select(metadata.tables[table]))

    async def body(self, guid: str) -> bytes:
        """The body of a delivery as it was received."""
        await self.context.intake.move_arrived()
        async with self.store.read() as tx:
            return (await inbox.find_delivery(tx, guid))["body"]

    async def send(self, event, payload, *, guid=None, secret=SECRET, headers=None, body=None):
        """Deliver a webhook as GitHub does; returns status and JSON."""
        raw = body if body is not None else json.dumps(payload).encode()
        sent = {
            "Content-Type": "application/json",
            "X-GitHub-Event": event,
            "X-GitHub-Delivery": guid or str(uuid.uuid4()),
            "X-Hub-Signature-256": sign(raw, secret),
        }
        sent.update(headers or {})
        sent = {name: value for name, value in sent.items() if value is not None}
        return await self.request("POST", "/api/github/webhooks", data=raw, headers=sent)

    async def report(self, dispatch, *, status="completed", conclusion="success", job="build", run_id="900",
                     attempt=1, token=None, claims=None, headers=None, **workflow):  # fmt: skip
        """Report on a job as a backend's workflow does; `dispatch` is what the simulated GitHub received."""
        body = report_body(
            dispatch, status=status, conclusion=conclusion, job=job, run_id=run_id, attempt=attempt
        )
        body["workflow"].update(workflow)
        if token is None:
            wanted = {"repository": dispatch.repo.full_name, "run_id": run_id, "run_attempt": attempt} | (
                claims or {}
            )
            token = self.issuer.mint(**wanted)
        sent = {"Authorization": f"Bearer {token}"} | (headers or {})
        return await self.request("POST", "/api/oot/callback", json=body, headers=sent)

    async def get(self, path, **options):
        return await self.request("GET", path, **options)

    async def request(self, method, path, **options):
        async with self.http.request(method, self.url + path, **options) as answer:
            text = await answer.text()
            assert secret_markers.leaks(f"{answer.headers}{text}") == [], path
            parsed = json.loads(text) if "json" in answer.headers.get("Content-Type", "") else text
            return answer.status, parsed

    def dispatch(self, repo, at=-1):
        """The newest (or `at`-th) dispatch a backend received."""
        return [dispatch for dispatch in self.github.dispatches if dispatch.repo.full_name == repo][at]

    def checks(self, repo, sha) -> dict[str, tuple]:
        """What the checks box shows: name -> (status, conclusion, title)."""
        ours = [run for run in self.github.check_runs(repo, sha) if run.app.app_id == self.app.app_id]
        return {run.name: (run.status, run.conclusion, run.output.title) for run in ours}


def report_body(dispatch, *, status, conclusion, job, run_id, attempt):
    """What an existing backend workflow sends."""
    sent = dispatch.client_payload
    return {
        "event_type": sent["event_type"],
        "delivery_id": sent["delivery_id"],
        "payload": sent["payload"],
        "callback_token": sent["callback_token"],
        "workflow": {
            "schema_version": "1.0", "status": status,
            "conclusion": conclusion if status == "completed" else None, "name": "CI",
            "url": f"https://github.com/{dispatch.repo.full_name}/actions/runs/{run_id}", "run_id": run_id,
            "run_attempt": attempt, "job_name": job, "check_run_id": None,
        },
    }  # fmt: skip


def sign(body: bytes, secret: str) -> str:
    return "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def make_settings(*, github, issuer, app, folder: Path, database_url=None, **overrides) -> Settings:
    allowlist = folder / "allowlist.yml"
    if not allowlist.exists():
        allowlist.write_text(ALLOWLIST)
    chosen = {
        "app_id": app.app_id,
        "webhook_secret": (SECRET,),
        "private_key": app.private_key_pem,
        "github_api_url": github.api_url,
        "upstream_repo": (UPSTREAM,),
        "allowlist": str(allowlist),
        "data_dir": folder,
        "database_url": database_url,
        "oidc_issuers": (IssuerConfig(issuer=issuer.url, repository_claim="repository"),),
        "admin_token": "an admin token of ours",
        "writes_per_min": 6000,
        "page_cache": 0,
        "of_features": {CollectSettings: CollectSettings(ci=())},  # most tests are not about it
    }
    return Settings(**(chosen | overrides))


@contextlib.asynccontextmanager
async def simulated_github(clock, app_key, **granted):
    """A GitHub with the upstream repository, four backends, and our App on all of them, with what is `granted`."""
    made = SimulatedGitHub(clock=clock)
    await made.start()
    made.app = made.register_app(webhook_url=None, webhook_secret=SECRET, private_key_pem=app_key, **granted)
    for name in (UPSTREAM, L1, L2, L3, L4):
        made.add_repo(name)
    assert made.state.repo(UPSTREAM).id == UPSTREAM_ID
    try:
        with recorded(made):
            yield made
    finally:
        await made.stop()


@contextlib.asynccontextmanager
async def signing_issuer(clock, key):
    """An issuer whose first key is this one: making one takes a tenth of a second."""
    with mock.patch.object(rsa, "generate_private_key", return_value=key):
        made = Issuer(clock=clock)
    await made.start()
    yield made
    await made.stop()


@contextlib.asynccontextmanager
async def _opened(settings, **options):
    """What a bot consists of; its store has the kind of threads that `running_threads` says."""
    async with contextlib.AsyncExitStack() as stack:
        with mock.patch.object(store, "Threads", running_threads):
            context = await stack.enter_async_context(
                make_context(settings, load_key=memoized.load_key, **options)
            )
        yield context


@contextlib.asynccontextmanager
async def running(settings, *, github, issuer, app, clock, features=FEATURES, begun=False):
    """Serve the bot on a free port; its worker moves only when a test settles.

    It is what `ootbot serve --processes 1` runs. `begun`: its database is as a bot leaves it that has begun already:
    only the allowlist is still to be read.
    """
    listening = socket.create_server(("127.0.0.1", 0))
    settings = replace(settings, port=listening.getsockname()[1])
    url = f"http://127.0.0.1:{settings.port}"
    async with _opened(settings, clock=clock, features=features) as context:
        runner = web.AppRunner(
            make_app(context, compiled=memoized.TEMPLATES),
            access_log=None,
            auto_decompress=False,
            shutdown_timeout=0.2,
        )
        await runner.setup()
        await web.SockSite(runner, listening).start()
        worker = make_worker(context)
        app.webhook_url = f"{url}/api/github/webhooks"
        async with aiohttp.ClientSession() as http:
            bot = Bot(context=context, worker=worker, url=url, http=http, github=github, issuer=issuer,
                      app=app, clock=clock)  # fmt: skip
            if begun:
                async with context.store.transaction() as tx:
                    tx.enqueue("allowlist", "")
            else:
                await worker.prepare()
            await bot.settle()
            try:
                yield bot
            finally:
                await runner.cleanup()
                web_app._cached_build_middleware.cache_clear()  # it would keep every bot of the suite in memory


__all__ = ["ALLOWLIST", "L1", "L2", "L3", "L4", "SECRET", "START", "UPSTREAM", "UPSTREAM_ID", "Bot", "Issuer", "ManualClock",
           "SimulatedGitHub", "make_settings", "replace", "report_body", "running", "sign"]  # fmt: skip
