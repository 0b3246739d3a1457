"""What `ootbot demo` stores, in a ClickHouse; the panels of the dashboard, as Grafana asks for them."""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import replace
from pathlib import Path

from bot.console.demo_past import write_past
from bot.demo import environment
from bot.demo.environment import Wanted
from bot.demo.scenario import Scenario
from tests.sinks import clickhouse_gateway
from tests.sinks.clickhouse_tables import Tables, sink_of

ROOT = Path(__file__).parents[2]
DASHBOARD = ROOT / "deploy" / "grafana" / "clickhouse.json"
WHAT = ["records", "oot_workflow_job", "tests", "utilization", "verdicts", "trunk", "artifacts", "bisects"]
PATIENCE = 300  # seconds for anything: a night's machine may be busy
COMES = {"test_run_summary", "failed_test_runs", "test_jobs", "util_metadata", "verdicts", "oot_workflow_job"}


@contextlib.asynccontextmanager
async def playing(folder):
    """Play the demo's scenario; yields the engine once everything is sent and compared."""
    with clickhouse_gateway.serving(folder) as port:
        sinks = json.dumps({"ch": sink_of(port, what=WHAT)})
        wanted = Wanted(start_timeout="1h", options={"SINKS": sinks}, write_past=write_past)
        async with environment.running(wanted) as env:
            await Scenario(replace(env, timeout=PATIENCE)).play()
            code, out = await env.bot.command(
                "sink", "backfill", "ch", "--since", "2020-01-01"
            )  # of the past
            assert code == 0, out
            async with asyncio.timeout(PATIENCE):
                while await left(env.bot):  # noqa: ASYNC110 - another process's state
                    await asyncio.sleep(2)
            code, out = await env.bot.command("sink", "check", "ch")
            assert code == 0, out
        found = Tables(folder, port, "ootbot")
        yield found
        await found.close()


async def left(bot):
    """What waits, and what the scenario has not come to yet."""
    _, out = await bot.command("sink", "list", "--json")
    rows = json.loads(out)
    assert [row for row in rows if row["attention"]] == []
    return [row["what"] for row in rows if row["waiting"] or (row["what"] in COMES and not row["sent"])]


def panels():
    """The panels with their queries, for the last 30 days."""
    found = []
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        (target,) = panel["targets"]
        sql = target["rawSql"].replace("$__fromTime", "now() - INTERVAL 30 DAY").replace("$__toTime", "now()")
        found.append((panel, sql))
    return found
