"""Sinks: what marking costs where deliveries become records, how fast marks are sent, and the memory that takes.

    python3 dev.py bench sinks [--rounds 3] [--only applied,s3,...] [--backlog 6000] [--objects 2000] [--rows 30000]
                               [--marks 1000000] [--json]

`ootbot serve` applies the same backlog without sinks and with three (an archive, upstream's layout, and the same once
more, of which the first two write to a directory and the third is paused), in turns; it is timed until all is
applied, and until nothing waits any more. Objects go to moto's S3 server, as they do from a plain boto3 loop, which
puts the same objects one after the other. Costs are compared by processor time, which does not depend on others.
Where chdb is installed (`python3 dev.py setup nightly`), rows of jobs go to ClickHouse's engine behind a gateway on
loopback, by our driver and by a plain loop of clickhouse-connect; and webhooks come in while so many marks are sent
to it: there it has the least priority, as if it had a machine of its own. The parts:

    applied     what marks add to a delivery that is applied    s3        objects a second, beside boto3
    clickhouse  rows a second, beside clickhouse-connect        drained   marks of a backlog sent a second, by kind
    webhooks    webhooks' p99 while a backlog is sent
"""  # fmt: skip

from __future__ import annotations

import argparse
import contextlib
import gzip
import json
import os
import shutil
import sys
import tempfile
import time
from collections import defaultdict
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parent.parent))

import boto3

from benchmarks.support import deliveries, marked_rows
from benchmarks.support.load import workflow_job
from benchmarks.support.machine import describe, figure, ratio, show
from benchmarks.support.marked_rows import drain, marked
from benchmarks.support.serve import Bot, count, until
from benchmarks.webhooks.applying import HANDLED, backlog
from tests.evidence.collect import bucket

if TYPE_CHECKING:
    from collections.abc import Iterator

LEAST_INGEST, LEAST_PUTS, MOST_MEMORY = 0.9, 100, 60  # ratio, objects a second, MB
LEAST_ROWS, ROWS = 20_000, "rows per second sent to ClickHouse"
LEAST_ITEMS = 300  # a second
MILLION, MOST_SECONDS, MOST_LATER = 1_000_000, 900, 1.2
RATE, WEBHOOK_SECONDS = 200, 15  # webhooks a second, and for how long they are measured
ITEMS = "marks per second sent to DynamoDB"
LASTS, LATER = (
    "seconds that a million marks take beside webhooks",
    "webhooks' p99 while marks are sent / before",
)
SMALL = {"a directory": 10, "DynamoDB": 30}  # kinds of sinks that get a part of the rows
PARTS = ("applied", "s3", "clickhouse", "drained", "webhooks")
WARM = 0.1  # of the backlog: the start is over then
WAITING = "SELECT count(*) FROM sink_mark WHERE sink != 'paused'"
MARKED = "SELECT count(*) FROM sink_mark"
SENT = "SELECT coalesce(sum(sent), 0) FROM sink_state"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default=",".join(PARTS), help="parts, comma separated")
    parser.add_argument("--backlog", type=int, default=6_000, help="deliveries that wait to be applied")
    parser.add_argument("--objects", type=int, default=2_000, help="objects sent to S3")
    parser.add_argument("--rows", type=int, default=30_000, help="rows sent to ClickHouse")
    parser.add_argument("--marks", type=int, default=MILLION, help="sent while webhooks come in")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    chosen = options.only.split(",")
    if unknown := set(chosen) - set(PARTS):
        parser.error(f"no part is named {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    if not find_spec("chdb"):
        chosen = [part for part in chosen if part not in {"clickhouse", "webhooks"}]
    result = {"name": "sinks", "machine": describe(), "rounds": options.rounds}
    found = [MEASURES[part](options) for part in PARTS if part in chosen]
    for place, section in enumerate(("ours", "peers", "ratios")):
        result[section] = {name: value for one in found for name, value in one[place].items()}
    result["reach"] = reach(result["ours"] | result["ratios"])
    show(result, as_json=options.json)


def tables(folder: str) -> dict:
    """Three sinks; what they get is what the deliveries of jobs touch."""
    common = {"kind": "objects", "batch_seconds": 1}
    return {
        "archive": common | {"url": f"file://{folder}/archive", "what": ["deliveries"]},
        "copies": common | {"url": f"file://{folder}/copies", "layout": "upstream", "what": ["records"]},
        "paused": common
        | {"url": f"file://{folder}/never", "layout": "upstream", "what": ["records"], "paused": True},
    }


def applied(options) -> tuple[dict, dict, dict]:
    """Have the same backlog applied without sinks, with three that only mark, and with two of three sent to."""
    rounds, size = options.rounds, options.backlog
    costs: dict[str, list[float]] = {"without": [], "marked": [], "sent": []}
    memory: dict[str, list[float]] = {"without": [], "sent": []}
    drained: list[float] = []
    with tempfile.TemporaryDirectory() as kept:
        backlog(kept, deliveries.jobs(size))
        for _ in range(rounds):
            for kind, found in costs.items():
                with tempfile.TemporaryDirectory() as folder:
                    shutil.copytree(kept, folder, dirs_exist_ok=True)
                    cost, megabytes, sent = _apply(folder, kind, size)
                    found.append(cost)
                    if kind in memory:
                        memory[kind].append(megabytes)
                    drained += [sent] if kind == "sent" else []
    more = [one - other for one, other in zip(memory["sent"], memory["without"], strict=True)]
    return (
        {
            "processor us a delivery applied, without sinks": figure(costs["without"], 0),
            "processor us a delivery applied, three sinks marked": figure(costs["marked"], 0),
            "processor us a delivery applied, two of them sent to meanwhile": figure(costs["sent"], 0),
            "rows per second sent to directories, each synced": figure(drained, 0),
            "MB more with sinks, once all is sent": figure(more, 0),
        },
        {},
        {
            "applied with three sinks marked / without": ratio(costs["without"], costs["marked"]),
            "applied while two are sent to / without": ratio(costs["without"], costs["sent"]),
        },
    )


def _apply(folder: str, kind: str, size: int) -> tuple[float, float, float]:
    """Return the processor's us for a delivery applied, megabytes at the end, and rows sent a second."""
    chosen = {} if kind == "without" else tables(folder)
    if kind == "marked":
        chosen = {name: table | {"paused": True} for name, table in chosen.items()}
    began = time.perf_counter()
    with Bot(folder, SINKS=json.dumps(chosen)) as bot:
        until(lambda: bot.count(HANDLED) >= size * WARM, "the first deliveries")
        first, used = bot.count(HANDLED), bot.cpu()
        until(lambda: bot.count(HANDLED) >= size, "the backlog")
        cost = (bot.cpu() - used) / max(size - first, 1) * 1e6
        if kind == "sent":
            until(lambda: not bot.count(WAITING), "the sinks")
        sent = bot.count(SENT) / (time.perf_counter() - began)
        return cost, bot.memory_mb()["pss_mb"], sent


def to_s3(options) -> tuple[dict, dict, dict]:
    """Send objects to S3: as the bot does, and by a loop with boto3."""
    rounds, size = options.rounds, options.objects
    puts: dict[str, list[float]] = {"ours": [], "boto3": []}
    with tempfile.TemporaryDirectory() as kept:
        backlog(kept, deliveries.jobs(size))
        for _ in range(rounds):
            with (
                bucket.serving() as variables,
                tempfile.TemporaryDirectory() as folder,
                environment(variables),
            ):
                shutil.copytree(kept, folder, dirs_exist_ok=True)
                puts["ours"].append(_send(folder, size))
                puts["boto3"].append(_loop(variables, size))
    return (
        {"objects per second sent to S3": figure(puts["ours"], 0)},
        {"boto3, one put after the other, per second": figure(puts["boto3"], 0)},
        {"objects to S3 / boto3 loop": ratio(puts["ours"], puts["boto3"])},
    )


def to_clickhouse(options) -> tuple[dict, dict, dict]:
    """Send rows of jobs to ClickHouse: by the driver, and by a loop of clickhouse-connect."""
    from benchmarks.support.clickhouse_rows import measure  # noqa: PLC0415 - it needs chdb

    ours, loop = zip(*(measure(options.rows) for _ in range(options.rounds)), strict=True)
    return (
        {
            ROWS: figure((one.per_second for one in ours), 0),
            "processor us of the driver, a row": figure(one.processor_us for one in ours),
            "processor us of the engine and its gateway, a row": figure(one.engine_us for one in ours),
        },
        {
            "clickhouse-connect, 5,000 rows an insert, per second": figure(
                (one.per_second for one in loop), 0
            ),
            "processor us of clickhouse-connect, a row": figure(one.processor_us for one in loop),
        },
        {
            "rows to ClickHouse / clickhouse-connect loop": ratio(
                [one.per_second for one in ours], [one.per_second for one in loop]
            )
        },
    )


def drained(options) -> tuple[dict, dict, dict]:
    """Send a backlog of marks to each kind of sink: all that the bot does for it."""
    rates: defaultdict[str, list[float]] = defaultdict(list)
    costs: defaultdict[str, list[float]] = defaultdict(list)
    for kind in ("ClickHouse", *SMALL):
        if kind == "ClickHouse" and not find_spec("chdb"):
            continue
        size = options.rows // SMALL.get(kind, 1)
        with marked(size) as kept:
            for _ in range(options.rounds):
                with _sink_of(kind) as table:
                    found = drain(kept, size, table)
                rates[kind].append(found.per_second)
                costs[kind].append(found.processor_us)
    ours = {f"marks per second sent to {kind}": figure(found, 0) for kind, found in rates.items()}
    return (
        ours | {f"processor us a mark, to {kind}": figure(found, 0) for kind, found in costs.items()},
        {},
        {},
    )


def beside_webhooks(options) -> tuple[dict, dict, dict]:
    """Send a backlog of marks while webhooks come in."""
    size = options.marks
    found = []
    with marked(size) as kept:
        for _ in range(options.rounds):
            with _sink_of("ClickHouse", "nice", "-n", "19") as table:
                found.append(
                    marked_rows.beside_webhooks(kept, size, table, rate=RATE, seconds=WEBHOOK_SECONDS)
                )
    before, meanwhile = ([one[name] for one in found] for name in ("p99 before", "p99 meanwhile"))
    return (
        {
            "webhooks' p99 before, ms": figure(before, 2),
            "webhooks' p99 while marks are sent, ms": figure(meanwhile, 2),
            "marks per second sent meanwhile": figure((one["per second meanwhile"] for one in found), 0),
            LASTS: figure((one["seconds"] * MILLION / size for one in found), 0),
        },
        {},
        {LATER: ratio(meanwhile, before)},
    )


@contextlib.contextmanager
def _sink_of(kind: str, *before: str) -> Iterator[dict]:
    """Serve what a kind of sink writes to; yields its table of the settings."""
    with contextlib.ExitStack() as serving:
        folder = serving.enter_context(tempfile.TemporaryDirectory())
        if kind == "ClickHouse":
            from tests.sinks import clickhouse_gateway  # noqa: PLC0415 - it needs lz4

            port = serving.enter_context(clickhouse_gateway.serving(Path(folder), *before))
            yield {"kind": "clickhouse", "url": f"http://127.0.0.1:{port}", "manage_schema": True}
        elif kind == "DynamoDB":
            variables = serving.enter_context(bucket.serving())
            serving.enter_context(environment(variables))
            endpoint = variables["AWS_ENDPOINT_URL"]
            yield {"kind": "dynamodb", "region": "us-east-1", "endpoint": endpoint, "create_tables": True}
        else:
            yield {"kind": "objects", "url": f"file://{folder}/copies", "layout": "upstream"}


def _send(folder: str, size: int) -> float:
    table = {"kind": "objects", "url": f"s3://{bucket.NAME}/x", "what": ["deliveries"], "batch_seconds": 1}
    with Bot(folder, SINKS=json.dumps({"archive": table | {"paused": True}})) as bot:
        until(lambda: bot.count(HANDLED) >= size, "the backlog")
    with Bot(folder, SINKS=json.dumps({"archive": table})):
        until(lambda: count(Path(folder) / "ootbot.db", MARKED) < size, "the first batch")
        began, first = time.perf_counter(), count(Path(folder) / "ootbot.db", MARKED)
        if not first:
            raise SystemExit("all was sent at once: more --objects are needed")
        until(lambda: not count(Path(folder) / "ootbot.db", MARKED), "the sink")
        return first / (time.perf_counter() - began)


def _loop(variables: dict, size: int) -> float:
    client = boto3.client("s3", endpoint_url=variables["AWS_ENDPOINT_URL"])
    body = workflow_job()
    began = time.perf_counter()
    for number in range(size):
        client.put_object(
            Bucket=bucket.NAME,
            Key=f"loop/{number}.json.gz",
            Body=gzip.compress(body),
            Metadata={"event": "workflow_job"},
        )
    return size / (time.perf_counter() - began)


@contextlib.contextmanager
def environment(variables: dict):
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def reach(found: dict) -> list[dict]:
    """Name each target, and whether it is met."""
    lines = [
        ("applied with three sinks marked / without", f">= {LEAST_INGEST}", lambda one: one >= LEAST_INGEST),
        ("objects per second sent to S3", f">= {LEAST_PUTS}", lambda one: one >= LEAST_PUTS),
        ("MB more with sinks, once all is sent", f"<= {MOST_MEMORY}", lambda one: one <= MOST_MEMORY),
        (ROWS, f">= {LEAST_ROWS}", lambda one: one >= LEAST_ROWS),
        (ITEMS, f">= {LEAST_ITEMS}", lambda one: one >= LEAST_ITEMS),
        (LASTS, f"<= {MOST_SECONDS}", lambda one: one <= MOST_SECONDS),
        (LATER, f"<= {MOST_LATER}", lambda one: one <= MOST_LATER),
    ]
    return [
        {"name": name, "target": target, "measured": found[name]["median"], "met": met(found[name]["median"])}
        for name, target, met in lines
        if name in found
    ]


MEASURES = {
    "applied": applied, "s3": to_s3, "clickhouse": to_clickhouse, "drained": drained, "webhooks": beside_webhooks,
}  # fmt: skip


if __name__ == "__main__":
    main()
