"""How fast rows of jobs reach ClickHouse: by the driver, and by a plain loop of clickhouse-connect."""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path

import clickhouse_connect

from bot.core.feature import load
from bot.db.rows import fields
from bot.ingest.exports import EXPORTS
from bot.ingest.rows import WorkflowJobRow
from bot.sinks.clickhouse.clickhouse_driver import ClickhouseDriver
from bot.sinks.clickhouse.options import ClickhouseOptions
from bot.sinks.driver import Batch, Outgoing
from tests.sinks import clickhouse_gateway

BATCH = 5_000
START = 1_790_000_000_000
STEP = {"name": "run the tests", "number": 1, "status": "completed", "conclusion": "success"}
(JOBS,) = [one for one in EXPORTS if one.name == "workflow_job"]


def measure(size: int) -> tuple[float, float]:
    """Return rows a second by the driver and by the loop."""
    with tempfile.TemporaryDirectory() as folder, clickhouse_gateway.serving(Path(folder)) as port:
        return asyncio.run(_measure(port, size))


async def _measure(port: int, size: int) -> tuple[float, float]:
    make = load(JOBS.shapes["clickhouse.ootbot"].make)
    driver = ClickhouseDriver(ClickhouseOptions(url=f"http://127.0.0.1:{port}", manage_schema=True))
    rows = [_row(number) for number in range(size)]
    batches = [rows[start : start + BATCH] for start in range(0, size, BATCH)]
    try:
        await _send(driver, make, batches[0][:1])  # makes the table
        began = time.perf_counter()
        for some in batches:
            await _send(driver, make, some)
        ours = size / (time.perf_counter() - began)
    finally:
        await driver.close()
    return ours, await _loop(port, make(JOBS).table.all_columns, batches)


async def _send(driver: ClickhouseDriver, make, rows) -> None:
    items = [Outgoing(key=(row["repository_id"], row["id"]), row=row, version=START) for row in rows]
    assert not await driver.send(Batch(export=JOBS, make=make, items=items))


async def _loop(port: int, columns, batches) -> float:
    client = await clickhouse_connect.get_async_client(
        host="127.0.0.1", port=port, autogenerate_session_id=False
    )
    names = list(columns)
    began = time.perf_counter()
    for some in batches:
        shaped = [[_shaped(row, name) for name in names] for row in some]
        await client.insert(
            "workflow_job",
            shaped,
            column_names=names,
            column_type_names=list(columns.values()),
            database="ootbot",
        )
    took = time.perf_counter() - began
    await client.close()
    return sum(map(len, batches)) / took


def _shaped(row, name):
    if name.startswith("_"):
        return START if name == "_version" else 0
    value = row[name]
    return str(value) if name == "steps" else value


def _row(number: int) -> dict:
    found = {name: f"{name} {number % 50}" for name, one in fields(WorkflowJobRow).items() if one.type is str}
    found |= {name: START + number for name, one in fields(WorkflowJobRow).items() if one.is_time}
    found |= {
        "repository_id": 1, "id": number, "run_id": number // 50, "run_attempt": 1, "runner_id": number % 900,
        "runner_group_id": 1, "labels": ["self-hosted", "npu.8"], "deleted_at": None,
        "steps": [STEP] * 8,
    }  # fmt: skip
    return found
