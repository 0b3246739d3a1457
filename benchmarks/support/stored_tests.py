"""A run of very many test cases, stored: from its artifacts, as downloaded, to rows, with the parser child."""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import sqlite3
import sys
import tempfile
import time
import zipfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

import sqlalchemy as sa
import structlog
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from benchmarks.support import test_pages
from bot.app import make_context, make_worker
from bot.core.settings import Settings
from bot.evidence.collect import fetch_file, fetches
from bot.evidence.collect.fetch_file import Wanted
from bot.evidence.collect.parser_pool import WORKSPACE
from bot.evidence.collect.receivers import Fetched
from bot.ingest.tables import records, repository_name
from bot.queue.tasks import WAITING, task

DAY = 86_400_000
REPOSITORY = 7
SUITES = 5_068
UPSTREAM = "example-org/project"
RUNS = {"new": 100, "next_day": 101, "same_day": 102}  # their ids, and what their tests are by then
REQUESTS = 40  # for each kind of page
KINDS = ("test_results", "test_days", "test_verdicts")  # those without a timetable: they come to an end
FAILURE = '<failure message="AssertionError: Tensor-likes are not close!">Traceback: line 3\n</failure>'


class Clock:
    """Time passes only where somebody sleeps: what is measured is work."""

    def __init__(self) -> None:
        self.at = round(time.time() * 1000) - 2 * DAY

    def now(self) -> int:
        return self.at

    async def sleep(self, seconds: float) -> None:
        self.at += round(seconds * 1000)
        await asyncio.sleep(0)


def head_of(run_id: int) -> str:
    return f"{run_id:040x}"


def artifact(path: Path, number: int, artifacts: int, cases: int, suites: int) -> None:
    """Write the reports of one job: a share of the tests, which other configurations run as well."""
    mine = range(number * cases // artifacts, (number + 1) * cases // artifacts)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        per_suite = max(len(mine) * artifacts // suites, 1)
        for start in range(mine.start, mine.stop, per_suite):
            some = range(start, min(start + per_suite, mine.stop))
            file = f"test_file_{start // (10 * per_suite)}"
            lines = [f'<testsuites><testsuite name="pytest" file="{file}.py">']
            for case in some:
                child = FAILURE if case % 5000 == 7 else ""
                name = f"test_operator_{case}_cuda_float32"
                lines.append(f'<testcase classname="TestOps{start // per_suite}CUDA" name="{name}" '
                             f'time="{case % 97 / 100}">{child}</testcase>')  # fmt: skip
            archive.writestr(
                f"test/test-reports/python-pytest/{file}/{file}-{start}.xml",
                "\n".join([*lines, "</testsuite></testsuites>"]),
            )


async def store_run(context, worker, folder: Path, run_id: int, artifacts: int) -> None:
    """Store a run whose artifacts lie in a folder."""
    now = context.clock.now()
    run = {"repository_id": REPOSITORY, "repo": UPSTREAM, "received_at": now, "id": run_id,
           "run_attempt": 1, "name": "pull", "event": "push", "head_branch": "main", "head_sha": head_of(run_id),
           "head_repository_id": REPOSITORY, "run_started_at": now, "merge_state": {}}  # fmt: skip
    async with context.store.transaction() as tx:
        await tx.run(sa.insert(records["workflow_run"]).values(run))
    for number in range(artifacts):
        job_id = run_id * 1000 + number
        job = {"repository_id": REPOSITORY, "repo": run["repo"], "received_at": now, "id": job_id, "run_id": run_id,
               "run_attempt": 1, "name": f"linux / test (default, {number + 1}, {artifacts}, linux.4xlarge)",
               "workflow_name": "pull", "head_sha": run["head_sha"], "started_at": now, "merge_state": {}}  # fmt: skip
        async with context.store.transaction() as tx:
            await tx.run(sa.insert(records["workflow_job"]).values(job))
            intent = {"repository_id": REPOSITORY, "kind": "artifact", "object_id": job_id, "run_id": run_id,
                      "run_attempt": 1, "job_id": job_id}  # fmt: skip
            await fetches.want_fetches(tx, [intent])
            row = await fetches.find_fetch(tx, REPOSITORY, "artifact", job_id)
        fetched = Fetched(
            repository_id=REPOSITORY, repo=run["repo"], source="artifact", kind="junit", object_id=job_id,
            run_id=run_id, run_attempt=1, job_id=job_id, name=f"test-reports-{number}", head_sha=run["head_sha"],
            trusted=True, private=False, size=1, sha256="",
        )  # fmt: skip
        wanted = Wanted(fetched=fetched, path="", size=1, digest=None, blob=f"results/7/{run_id}/{job_id}")
        async with context.resource(WORKSPACE).folder() as place:
            (place / "file").write_bytes((folder / f"{number}.zip").read_bytes())
            await fetch_file.parse_file(context, row, wanted, fetch_file.reader_of(context, "junit"), place)
    await work(context, worker)


async def work(context, worker) -> None:
    """Do what was left to do."""
    while True:
        while await worker.step():
            pass
        async with context.store.read() as tx:
            waiting = sa.select(sa.func.min(task.c.due_at)).where(WAITING, task.c.kind.in_(KINDS))
            due = (await tx.run(waiting)).scalar()  # fmt: skip
        if due is None:
            return
        context.clock.at = max(context.clock.at, due)


def make_key() -> str:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    kind = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, *kind).decode()


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("ootbot.db*"))


def used(whose: int) -> float:
    usage = resource.getrusage(whose)
    return usage.ru_utime + usage.ru_stime


def resident() -> float:
    """The memory resident now, in MB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return 0.0


async def measure(folder: Path, cases: int, artifacts: int, suites: int) -> dict:
    """Store the same run three times: its tests new, then known, for the first time on a day and once more."""
    found: dict = {}
    for number in range(artifacts):
        artifact(folder / f"{number}.zip", number, artifacts, cases, suites)
    settings = Settings(
        app_id=1, webhook_secret=("x" * 20,), private_key=make_key(), upstream_repo=(UPSTREAM,),
        allowlist="", data_dir=folder, oidc_issuers=(),
    )  # fmt: skip
    async with make_context(settings, clock=Clock()) as context:
        worker = make_worker(context)
        async with context.store.transaction() as tx:
            known = {"repository_id": REPOSITORY, "repo": UPSTREAM, "received_at": 1, "id": REPOSITORY,
                     "full_name": UPSTREAM, "private": False, "default_branch": "main",
                     "merge_state": {}}  # fmt: skip
            await tx.run(sa.insert(records["repository"]).values(known))
            await tx.run(sa.insert(repository_name).values(repository_id=REPOSITORY, name=UPSTREAM))
        for what, run_id in RUNS.items():
            context.clock.at += DAY if what == "next_day" else 60_000
            await flush(context)
            before, size, memory = used(resource.RUSAGE_SELF), size_of(folder), resident()
            wall = time.monotonic()
            await store_run(context, worker, folder, run_id, artifacts)
            await flush(context)
            found[what] = {
                "cpu_seconds": round(used(resource.RUSAGE_SELF) - before, 1),
                "wall_seconds": round(time.monotonic() - wall, 1),
                "database_mb": round((size_of(folder) - size) / 1e6, 2),
                "server_mb": round(resident() - memory, 1),
                "server_peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
            }
    found["child_cpu_seconds"] = round(used(resource.RUSAGE_CHILDREN), 1)
    return found


async def flush(context) -> None:
    """Bring all that is written into the database file."""
    async with context.store.transaction() as tx:
        await tx.run(sa.text("SELECT 1"))
    with sqlite3.connect(context.settings.data_dir / "ootbot.db") as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=610_000)
    parser.add_argument("--artifacts", type=int, default=120)
    parser.add_argument("--suites", type=int, default=SUITES)
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        found = asyncio.run(measure(folder, options.cases, options.artifacts, options.suites))
        heads = [head_of(run_id) for run_id in RUNS.values()]
        found["pages"] = test_pages.measure(folder, UPSTREAM, heads, REQUESTS)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
