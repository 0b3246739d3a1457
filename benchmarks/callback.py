"""Reports per second that are verified, recorded and durable before they are answered.

    python3 dev.py bench callback [--rounds 5] [--seconds 3] [--json]

`ootbot serve` with its worker, on SQLite: as it starts by default, on all cores, which it shares with the generator;
and as one process on one core. Every report is a job of its own that begins or completes, in one of 64 runs, each with
its dispatch: with an RS256 token, a callback token and the echo of the dispatch. The same endpoint without store and
worker, on one core, stands beside them in interleaved rounds. Processor time is that of all the server's processes,
and depends less on what else the machine does.
"""  # fmt: skip

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import io
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parent.parent))

import aiohttp
import msgspec
import sqlalchemy as sa
import uvloop
from aiohttp import web

from benchmarks.support import generator
from benchmarks.support.load import pin, pull_request
from benchmarks.support.machine import Server, describe, figure, median, ratio, show
from benchmarks.support.serve import Bot
from bot.app import make_context
from bot.core import log_output
from bot.core.clock import SystemClock
from bot.core.setting_types import IssuerConfig
from bot.core.settings import Settings
from bot.db.installation import secret
from bot.demo.github.auth import private_key
from bot.demo.issuer import Issuer
from bot.oot.allowlist import versions as allowlists
from bot.oot.allowlist.entry import DEFAULT_EVENTS
from bot.oot.reports import authorization, endpoints
from bot.oot.reports.oidc import VERIFIER, Verifier
from bot.oot.results import dispatches
from bot.web import server
from bot.web.access import CONTEXT
from bot.web.bodies import read_body

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

UPSTREAM, BACKEND = "org/project", "org/backend"
SECRET = b"k" * 32
LISTED = f"L4: {{tpu: {BACKEND}}}\n"
DISPATCH = {
    "upstream_repo": UPSTREAM, "event_type": "pull_request", "action": "opened", "pr_number": 7,
    "head_sha": "b" * 40, "base_sha": "b" * 40, "labels": ["bug"], "backend": BACKEND, "backend_key": BACKEND,
    "level": 4, "device": "tpu", "state": "sent", "attempts": 1, "token_jti": "jti", "error": None,
}  # fmt: skip
DISPATCHED_AT = int(time.time() * 1000)
ECHO = 4_000  # bytes of the dispatch's payload, as reports return it
BATCH = 350
RUNS = 64  # report at the same time, each about the dispatch of its number
WARM = 0.5  # seconds of the same load before
MOST = 8_000  # reports a second that are prepared
DEFAULT, ALONE, VERIFYING = (
    "ootbot serve",
    "ootbot serve, one process, one core",
    "verified, not stored, one core",
)
PREDECESSOR = 507  # reports a second of the relay before us (FastAPI, Redis, one core), measured elsewhere


def dispatch(run: int) -> dict:
    """The dispatch that this run's reports answer, recorded by the server and known to the generator."""
    delivery = f"00000000-0000-4000-8000-{run:012}"
    own = {"id": dispatches.dispatch_id(delivery, BACKEND), "delivery_id": delivery, "source_guid": delivery}
    return DISPATCH | own | {"created_at": DISPATCHED_AT, "dispatched_at": DISPATCHED_AT}


async def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    issuer = Issuer()
    await issuer.start()
    rates: dict[str, list[float]] = {DEFAULT: [], ALONE: [], VERIFYING: []}
    costs: dict[str, list[float]] = {name: [] for name in rates}
    shares, batches, errors = [], [], 0
    for _ in range(options.rounds):
        for name, taken in rates.items():
            async with started(name, issuer) as server:
                core = None if name == DEFAULT else 1
                await burst(server.port, issuer, WARM, core)
                before = server.cpu()
                found = await burst(server.port, issuer, options.seconds, core)
                costs[name].append((server.cpu() - before) / max(found["answers"], 1) * 1e6)
                taken.append(found["per_second"])
                shares.append(found["generator_cpu_share"])
                errors += found["answers"] - found["statuses"].get("200", 0) + found["errors"]
                if name == DEFAULT:
                    batches.append(await batch(server.port, issuer))
    result = {
        "name": "callback",
        "machine": describe(),
        "rounds": options.rounds,
        "ours": {f"{name}, reports per second": figure(some) for name, some in rates.items()}
        | {f"{name}, processor us a report": figure(some) for name, some in costs.items()}
        | {
            f"batch_of_{BATCH}_ms": median(batches),
            "verify_token_ms": await verifying(issuer),
            "generator_share_of_a_core": round(max(shares), 2),
            "answers_other_than_200": errors,
        },
        "peers": {"predecessor_per_second": PREDECESSOR},
        "ratios": {f"{name} / {VERIFYING}": ratio(rates[name], rates[VERIFYING]) for name in (DEFAULT, ALONE)}
        | {f"{DEFAULT} / predecessor": ratio(rates[DEFAULT], [PREDECESSOR] * options.rounds)},
    }
    await issuer.stop()
    show(result, as_json=options.json)


@contextlib.asynccontextmanager
async def started(name: str, issuer: Issuer) -> AsyncIterator[Server]:
    """A server process on a new database; started from a thread, since it asks this one for its keys."""
    with tempfile.TemporaryDirectory() as folder:
        if name == VERIFYING:
            words = (sys.executable, __file__, "serve", "{port}", folder, issuer.url)
            start = functools.partial(Server, *words, core=0)
        else:
            settings = settings_for(folder, issuer.url)
            await fill(settings)
            trusted_issuers = json.dumps([{"issuer": issuer.url, "repository_claim": "repository"}])
            start = functools.partial(
                Bot, folder, allowlist=LISTED, UPSTREAM_REPO=UPSTREAM, OIDC_ISSUERS=trusted_issuers,
                RATE_LIMIT_PER_MIN=settings.rate_limit_per_min,
            )  # fmt: skip
            if name == ALONE:
                start = functools.partial(start, processes=1, core=0)
        with await asyncio.to_thread(start) as server:
            yield server


class Reports:
    """Prepared requests: tokens are signed before, every report is about a job of its own."""

    def __init__(self, issuer: Issuer):
        self.tokens = [mint(issuer, run) for run in range(RUNS)]
        self.prefix = f"{time.time_ns():x}"
        self.made = 0

    def next(self) -> bytes:
        run = self.made % RUNS
        status = "completed" if self.made // RUNS % 2 else "in_progress"
        job = f"{self.prefix} {self.made // (2 * RUNS)}"
        self.made += 1
        body = json.dumps(report(run, job, status)).encode()
        return generator.posted("/api/oot/callback", body, {"Authorization": f"Bearer {self.tokens[run]}"})


def mint(issuer: Issuer, run: int) -> str:
    return issuer.mint(repository=BACKEND, run_id=str(1000 + run))


def report(run: int, job: str, status: str) -> dict:
    """What a backend's workflow sends."""
    workflow = {
        "schema_version": 1, "status": status, "name": "CI", "run_id": str(1000 + run), "run_attempt": 1,
        "url": f"https://github.com/{BACKEND}/actions/runs/{1000 + run}", "job_name": job, "check_run_id": 9001,
    }  # fmt: skip
    if status == "completed":
        workflow |= {
            "conclusion": "failure", "test_results": {"passed": 8430, "failed": 2, "skipped": 20},
            "failed_tests": [{"name": "test_add", "message": "expected 1"}, {"name": "test_mul"}],
        }  # fmt: skip
    return envelope(run) | {"workflow": workflow}


@functools.cache
def envelope(run: int) -> dict:
    """What a run was dispatched with."""
    answered = dispatch(run)
    return {
        "event_type": "pull_request",
        "delivery_id": answered["delivery_id"],
        "payload": json.loads(pull_request(ECHO)),
        "callback_token": authorization.make_token(answered, SECRET),
    }


async def burst(port: int, issuer: Issuer, seconds: float, core: int | None) -> dict:
    """Keep the connections busy for so long; raises SystemExit where not enough reports were prepared."""
    reports = Reports(issuer)
    prepared = [reports.next() for _ in range(round(MOST * seconds))]
    running = generator.Running(port, prepared, seconds=seconds, core=core)
    found = await asyncio.to_thread(running.result)
    if found["answers"] > len(prepared):
        raise SystemExit(f"more than {MOST} reports a second: prepare more (MOST), or some are repetitions")
    return found


async def batch(port: int, issuer: Issuer) -> float:
    """Milliseconds of one request with many reports of new jobs."""
    name = f"batch {time.time_ns():x}"
    reports = [report(1, f"{name} {n}", "completed") for n in range(BATCH)]
    headers = {"Authorization": f"Bearer {mint(issuer, 1)}"}
    body = json.dumps({"reports": reports}).encode()
    async with aiohttp.ClientSession() as http:
        began = time.perf_counter()
        url = f"http://127.0.0.1:{port}/api/oot/callback/batch"
        async with http.post(url, data=io.BytesIO(body), headers=headers) as answer:
            said = await answer.json()
        took = time.perf_counter() - began
    codes = {one["code"] for one in said["reports"]}
    if (answer.status, codes, len(said["reports"])) != (200, {200}, BATCH):
        raise RuntimeError(f"the batch was answered {answer.status} {codes}")
    return round(took * 1000, 1)


async def verifying(issuer: Issuer) -> float:
    """Median milliseconds one token takes once the keys are there."""
    tokens = [mint(issuer, run) for run in range(RUNS)]
    took = []
    async with aiohttp.ClientSession() as http:
        verifier = Verifier(trusted(issuer.url), audiences=["ootbot"], http=http, clock=SystemClock())
        for token in tokens * 20:
            began = time.perf_counter()
            await verifier.verify(token)
            took.append(time.perf_counter() - began)
    return round(statistics.median(took) * 1000, 3)


def trusted(url: str) -> tuple[IssuerConfig, ...]:
    return (IssuerConfig(issuer=url, repository_claim="repository"),)


async def verify_only(request: web.Request) -> web.Response:
    """The same endpoint without the store."""
    claims = await endpoints.authenticate(request)
    body = await read_body(request, limit=endpoints.REPORT_LIMIT)
    given = endpoints.parse_submission(claims, body, request.app[CONTEXT].settings)
    answer = {"ok": True, "status": given.report.status}
    return web.Response(body=msgspec.json.encode(answer), content_type="application/json")


def settings_for(folder: str, issuer: str) -> Settings:
    """Settings of a bot with one backend, and its allowlist."""
    allowlist = Path(folder) / "allowlist.yml"
    allowlist.write_text(LISTED)
    return Settings(
        app_id=1, webhook_secret=("w",), private_key=private_key(), upstream_repo=(UPSTREAM,),
        allowlist=str(allowlist), data_dir=Path(folder), oidc_issuers=trusted(issuer), rate_limit_per_min=10**9,
    )  # fmt: skip


async def fill(settings: Settings) -> None:
    """Make the database, with the dispatches that are reported on."""
    async with make_context(settings) as context, context.store.transaction() as tx:
        await tx.run(sa.insert(secret).values(name="callback", value=SECRET))
        await allowlists.record_version(
            tx, source="file", content=LISTED, error=None, default_events=DEFAULT_EVENTS
        )
        for run in range(RUNS):
            await dispatches.add_dispatch(tx, dispatch(run))


async def serve(port: int, folder: str, issuer: str) -> None:
    """Verify reports, and store nothing."""
    settings = settings_for(folder, issuer)
    async with make_context(settings) as context:
        app = server.make_app(context, body_seconds=10.0)
        app[VERIFIER] = Verifier(
            settings.oidc_issuers, audiences=["ootbot"], http=context.http, clock=context.clock
        )
        app.add_routes([web.post("/api/oot/callback", verify_only)])
        runner = web.AppRunner(app, access_log=None, auto_decompress=False)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        print("ready", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    log_output.configure(fmt="json", level="warning")
    if sys.argv[1:2] == ["serve"]:
        pin(0)
        uvloop.run(serve(int(sys.argv[2]), *sys.argv[3:5]))
    else:
        uvloop.run(main())
