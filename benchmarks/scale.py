"""Gain of more processes, and cost of more backends.

    python3 dev.py bench scale [--rounds 2] [--deliveries 600] [--pushes 2] [--json]

First a backlog of deliveries on PostgreSQL, each with the tasks that follow from it, taken by one process and by four.
Then pushes that meet 100 and 200 backends, each of which reports a job: processor seconds of `ootbot serve`, of all its
processes, for one push.
"""  # fmt: skip

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
import tempfile
import time
import uuid
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import aiohttp
import sqlalchemy as sa

from benchmarks.support.load import pull_request
from benchmarks.support.machine import OTHERS, Server, describe, median, ours, show
from benchmarks.support.postgres import postgres
from benchmarks.support.process_tree import family_cpu
from bot.core.clock import SystemClock
from bot.database import make_store
from bot.db import postgres as notify
from bot.demo.github import SimulatedGitHub
from bot.demo.issuer import Issuer
from bot.features import FEATURES
from bot.ingest.inbox import Incoming
from bot.ingest.intake import Intake
from tests.harness import PERIODIC, SECRET, report_body
from tests.process import Process, options_for

PROCESSES = (1, 4)
BACKENDS = (100, 200)
BLOCKING, LABELLED = 0.2, 0.2  # shares at L4 and L3, the rest at L2
UPSTREAM = "example-org/project"
PATIENCE = 100.0  # seconds for anything


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--deliveries", type=int, default=600, help="in one backlog")
    parser.add_argument("--pushes", type=int, default=2, help="for each number of backends")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    taken = processes(options)
    costs = {number: asyncio.run(cost_per_push(number, options.pushes)) for number in BACKENDS}
    rates = {number: [median(values) for values in zip(*taken[number], strict=True)] for number in PROCESSES}
    few, many = (rates[number] for number in PROCESSES)
    result = {
        "name": "scale",
        "machine": describe(),
        "rounds": options.rounds,
        "ours": {
            **{f"deliveries and tasks a second, {n} processes": rates[n][0] for n in PROCESSES},
            **{f"of them a processor second, {n} processes": rates[n][1] for n in PROCESSES},
            **{f"processor seconds a push, {n} backends": costs[n] for n in BACKENDS},
        },
        "peers": {},
        "ratios": {
            "4 processes / 1": round(many[0] / few[0], 2),
            "4 processes / 1, a processor second": round(many[1] / few[1], 2),
            "200 backends / 100": round(costs[200] / costs[100], 2),
        },
    }
    show(result, as_json=options.json)


def processes(options) -> dict[int, list[tuple[float, float]]]:
    """What `drained` says, by number of processes, in interleaved rounds."""
    taken: dict[int, list[tuple[float, float]]] = {number: [] for number in PROCESSES}
    with postgres() as database:
        for _ in range(options.rounds):
            for number in PROCESSES:
                taken[number].append(asyncio.run(drained(database.url, number, options.deliveries)))
    return taken


async def drained(url: str, number: int, deliveries: int) -> tuple[float, float]:
    """Let so many processes take a backlog; returns deliveries and tasks a second, and a processor second.

    Half as many before that let each of them open its connections and learn its statements.
    """
    store = make_store(url, clock=SystemClock(), features=FEATURES)
    await store.open()
    try:
        await put_aside(store, deliveries + deliveries // 2)
        with contextlib.ExitStack() as stack:
            workers = [
                stack.enter_context(Server(*ours("unpinned_worker", tempfile.mkdtemp(), url)))
                for _ in range(number)
            ]
            await take(store, deliveries // 2)
            began, used, before = time.perf_counter(), cpu(workers), await tasks_done(store)
            await take(store, deliveries)
            took, used = time.perf_counter() - began, cpu(workers) - used
            done = deliveries + await tasks_done(store) - before
            return done / took, done / used
    finally:
        await store.close()


def cpu(workers: list[Server]) -> float:
    return sum(server.cpu() for server in workers)


async def take(store, deliveries: int) -> None:
    """Let so many of those put aside be taken, all at one moment, and wait for the end."""
    some = f"SELECT id FROM delivery WHERE state = 'foreign' LIMIT {deliveries}"
    async with store.transaction() as tx:
        await tx.run(sa.text(f"UPDATE delivery SET state = 'stored' WHERE id IN ({some})"))
        await tx.run(notify.wake_up_statement(store.name))
    await until(lambda: nothing_left(store), "the end of the backlog")


async def put_aside(store, deliveries: int) -> None:
    """Store deliveries that nobody takes yet: as many pull requests, each to be relayed to whoever is listed."""
    template = (
        pull_request(9_000).replace(b'"org/project"', b'"org/upstream"').replace(b'"edited"', b'"opened"')
    )
    intake, first = Intake(store), int(time.time() * 1000)
    for start in range(first, first + deliveries, 200):
        numbers = range(start, min(start + 200, first + deliveries))
        await asyncio.gather(*(intake.put(opened(template, number)) for number in numbers))
    await intake.close()


def opened(template: bytes, number: int) -> Incoming:
    body = template.replace(b'"id": 3, "number": 7', b'"id": %d, "number": %d' % (number, number))
    body = body.replace(b"b" * 40, b"%040x" % number)  # or each would be about the head of all others
    return Incoming(guid=str(uuid.uuid4()), event="pull_request", foreign=True, body=body)


async def nothing_left(store) -> bool:
    """Whether every delivery is handled and no task is to be done but the timetable's and what waits for GitHub."""
    kinds = ", ".join(f"'{kind}'" for kind in PERIODIC)
    query = (
        "SELECT EXISTS (SELECT 1 FROM delivery WHERE state = 'stored') OR EXISTS "
        f"(SELECT 1 FROM task WHERE state IN ('waiting', 'running') AND error IS NULL AND kind NOT IN ({kinds}))"
    )
    async with store.read() as tx:
        return not (await tx.run(sa.text(query))).scalar()


async def tasks_done(store) -> int:
    async with store.read() as tx:
        return (await tx.run(sa.text("SELECT count(*) FROM task WHERE state = 'done'"))).scalar()


async def until(true, what: str) -> None:
    end = time.monotonic() + PATIENCE
    while not await true():
        if time.monotonic() > end:
            raise SystemExit(f"waited {PATIENCE:.0f} s for {what}")
        await asyncio.sleep(0.02)


async def cost_per_push(number: int, pushes: int) -> float:
    """Processor seconds the bot needs for a push to a pull request that so many backends take part in."""
    names = [f"org-{at:03}/backend" for at in range(number)]
    github, issuer = SimulatedGitHub(clock=SystemClock()), Issuer(clock=SystemClock())
    await github.start()
    await issuer.start()
    app = github.register_app(webhook_url=None, webhook_secret=SECRET)
    for name in (UPSTREAM, *names):
        github.add_repo(name)
    with tempfile.TemporaryDirectory() as folder:
        process = Process(Path(folder), **serve_options(Path(folder), github, issuer, app, names))
        app.webhook_url = f"{process.url}/api/github/webhooks"
        await asyncio.wait_for((await process.start()).wait(), PATIENCE)
        try:
            async with aiohttp.ClientSession() as http:
                crowd = Crowd(github, issuer, process, http)
                pull = await crowd.opened(number)
                costs = [await crowd.push(pull, number) for _ in range(pushes)]
        except BaseException as error:
            error.add_note("\n".join(process.said[-20:]))
            raise
        finally:
            OTHERS.apart += family_cpu(process.pid)  # another process has forked it
            process.kill()
            await process.ended()
            await issuer.stop()
            await github.stop()
    return round(sum(costs) / len(costs), 2)


def serve_options(folder: Path, github, issuer, app, names: list[str]) -> dict[str, str]:
    options = options_for(
        folder, private_key=app.private_key_pem, app_id=app.app_id, api_url=github.api_url, issuer=issuer
    )
    blocking, labelled = round(BLOCKING * len(names)), round((BLOCKING + LABELLED) * len(names))
    lines = ["L2: [" + ", ".join(names[labelled:]) + "]", "L3:"]
    lines += [f"  npu-{name[4:7]}: {name}" for name in names[blocking:labelled]]
    lines += ["L4:", *(f"  gpu-{name[4:7]}: {name}" for name in names[:blocking])]
    (folder / "allowlist.yml").write_text("\n".join(lines) + "\n")
    return options | {
        "UPSTREAM_REPO": UPSTREAM,
        "WRITES_PER_MIN": "60000",
        "PUBLISH_INTERVAL": "1s",
        "PROCESSES": "auto",
    }


class Crowd:
    """Backends that run one job each for every push; one in ten fails."""

    def __init__(self, github, issuer, process, http):
        self.github, self.issuer, self.process, self.http = github, issuer, process, http

    async def opened(self, number: int):
        """A pull request, dispatched to all its backends, none of them running."""
        pull = await self.github.open_pull(UPSTREAM, author="octocat")
        await self.dispatched(pull, number)
        return pull

    async def push(self, pull, number: int) -> float:
        """One push until all is quiet again; returns the bot's processor seconds."""
        before = self.cpu()
        await self.github.push_commit(pull)
        sent = await self.dispatched(pull, number)
        for at in range(0, number, 20):
            await asyncio.gather(
                *(self.run(dispatch, fails=at % 100 == 0) for dispatch in sent[at : at + 20])
            )
        await until(self.quiet, "an end of the work")
        return self.cpu() - before

    async def run(self, dispatch, *, fails: bool) -> None:
        run = await self.github.start_run(dispatch.repo, event="repository_dispatch", name="CI")
        over = "failure" if fails else "success"
        await self.report(dispatch, run, "in_progress", over)
        await self.report(dispatch, run, "completed", over)
        await self.github.finish_run(run, over)

    async def report(self, dispatch, run, status: str, conclusion: str) -> None:
        body = report_body(
            dispatch, status=status, conclusion=conclusion, job="build", run_id=str(run.id), attempt=1
        )
        token = self.issuer.mint(repository=dispatch.repo.full_name, run_id=str(run.id), run_attempt=1)
        headers = {"Authorization": f"Bearer {token}"}
        async with self.http.post(
            f"{self.process.url}/api/oot/callback", json=body, headers=headers
        ) as answer:
            assert answer.status == 200, await answer.text()

    async def dispatched(self, pull, number: int) -> list:
        """The dispatches of its head, once they are all there and nothing else is to be done."""

        def sent() -> list:
            return [
                one for one in self.github.dispatches
                if one.client_payload["payload"]["pull_request"]["head"]["sha"] == pull.head_sha
            ]  # fmt: skip

        async def all_sent() -> bool:
            return len(sent()) >= number and await self.quiet()

        await until(all_sent, f"{number} dispatches")
        return sent()

    async def quiet(self) -> bool:
        """Whether nothing is to be done soon."""
        tasks = self.process.rows("SELECT kind, due_at FROM task WHERE state IN ('waiting', 'running')")
        soon = SystemClock().now() + 15_000
        busy = [row for row in tasks if row["kind"] not in PERIODIC and row["due_at"] < soon]
        return not busy and not self.process.rows("SELECT 1 FROM delivery WHERE state = 'stored' LIMIT 1")

    def cpu(self) -> float:
        return family_cpu(self.process.pid)


if __name__ == "__main__":
    main()
