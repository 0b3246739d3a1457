"""How fast rows of jobs reach ClickHouse: by the driver, and by a plain loop of clickhouse-connect."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import clickhouse_connect

from benchmarks.support.process_tree import cpu_of, family
from bot.core.feature import load
from bot.db.rows import fields
from bot.ingest.exports import EXPORTS
from bot.ingest.record_rows import WorkflowJobRow
from bot.sinks.clickhouse import ClickhouseDriver
from bot.sinks.driver import Batch, Outgoing
from bot.sinks.settings import ClickhouseOptions
from tests.sinks import clickhouse_gateway

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable

BATCH = 5_000
START = 1_790_000_000_000
STEPS = json.dumps(
    [{"name": "run the tests", "number": 1, "status": "completed", "conclusion": "success"}] * 8
)
(JOBS,) = [one for one in EXPORTS if one.name == "workflow_job"]


@dataclass
class Measured:
    """What sending rows came to, by the driver or by the loop."""

    per_second: float
    processor_us: float  # of the one who sends, a row
    engine_us: float  # of the server


def measure(size: int) -> tuple[Measured, Measured]:
    """Send rows by the driver and by the loop."""
    with tempfile.TemporaryDirectory() as folder, clickhouse_gateway.serving(Path(folder)) as port:
        return asyncio.run(_measure(port, size))


async def _measure(port: int, size: int) -> tuple[Measured, Measured]:
    make = load(JOBS.shapes["clickhouse.ootbot"].make)
    driver = ClickhouseDriver(ClickhouseOptions(url=f"http://127.0.0.1:{port}", manage_schema=True))
    rows = [_row(number) for number in range(size)]
    batches = [rows[start : start + BATCH] for start in range(0, size, BATCH)]
    try:
        await _send(driver, make, batches[0][:1])  # makes the table
        ours = await _timed(size, (_send(driver, make, some) for some in batches))
    finally:
        await driver.close()
    return ours, await _loop(port, make(JOBS).table.all_columns, batches)


async def _timed(size: int, inserts: Iterable[Awaitable[None]]) -> Measured:
    began, used, engine = time.perf_counter(), time.process_time(), _engine_cpu()
    for one in inserts:
        await one
    took, used, engine = (
        time.perf_counter() - began, time.process_time() - used, _engine_cpu() - engine,
    )  # fmt: skip
    return Measured(size / took, used / size * 1e6, engine / size * 1e6)


def _engine_cpu() -> float:
    """Return the processor seconds of the gateway, the only process that was started here."""
    return sum(map(cpu_of, family(os.getpid())[1:]))


async def _send(driver: ClickhouseDriver, make, rows) -> None:
    items = [Outgoing(key=(row["repository_id"], row["id"]), row=row, version=START) for row in rows]
    assert not await driver.send(Batch(export=JOBS, make=make, items=items))


async def _loop(port: int, columns, batches) -> Measured:
    client = await clickhouse_connect.get_async_client(
        host="127.0.0.1", port=port, autogenerate_session_id=False
    )
    names = list(columns)

    async def insert(some) -> None:
        await client.insert(
            "workflow_job",
            [[_shaped(row, name) for name in names] for row in some],
            column_names=names,
            column_type_names=list(columns.values()),
            database="ootbot",
        )

    try:
        return await _timed(sum(map(len, batches)), map(insert, batches))
    finally:
        await client.close()


def _shaped(row, name):
    if name.startswith("_"):
        return START if name == "_version" else 0
    return row[name]


def _row(number: int) -> dict:
    found = {name: f"{name} {number % 50}" for name, one in fields(WorkflowJobRow).items() if one.type is str}
    found |= {name: START + number for name, one in fields(WorkflowJobRow).items() if one.is_time}
    found |= {
        "repository_id": 1, "id": number, "run_id": number // 50, "run_attempt": 1, "runner_id": number % 900,
        "runner_group_id": 1, "labels": ["self-hosted", "npu.8"], "deleted_at": None,
        "steps": STEPS,
    }  # fmt: skip
    return found
