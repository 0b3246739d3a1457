"""The queries of docs/sinks and the panels of deploy/grafana on what the demo stores, with the output that is documented."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest

pytest.importorskip("chdb")

from bot.demo import environment
from bot.demo.scenario import Scenario
from tests.sinks import clickhouse_gateway
from tests.sinks.clickhouse_tables import Tables, sink_of

pytestmark = pytest.mark.nightly
ROOT = Path(__file__).parents[2]
QUERIES = sorted((ROOT / "docs" / "sinks").glob("*.sql"))
DOCUMENT = ROOT / "docs" / "sinks" / "README.md"
DASHBOARD = ROOT / "deploy" / "grafana" / "clickhouse.json"
WHAT = ["records", "oot_workflow_job", "tests", "utilization", "verdicts", "trunk", "artifacts", "bisects"]
COMES = {"test_run_summary", "failed_test_runs", "test_jobs", "util_metadata", "verdicts", "oot_workflow_job"}
SHOWN = 8  # rows of each output
MAY_BE_EMPTY = {"time_to_culprit", "cost_of_infra_failures", "first_failing_commits"}  # of the demo


@pytest.fixture
async def demo(tmp_path):
    """The engine with what the demo stored."""
    with clickhouse_gateway.serving(tmp_path) as port:
        sinks = json.dumps({"ch": sink_of(port, what=WHAT)})
        async with environment.running(port=0, start_timeout="1h", options={"SINKS": sinks}) as env:
            scenario = Scenario(env)
            await scenario.play()
            async with asyncio.timeout(240):
                while await left(env.bot):  # noqa: ASYNC110 - another process's state
                    await asyncio.sleep(2)
            code, out = await env.bot.command("sink", "check", "ch")
            assert code == 0, out
        found = Tables(tmp_path, port, "ootbot")
        yield found
        await found.close()


async def left(bot):
    """What waits, and what the scenario has not come to yet."""
    _, out = await bot.command("sink", "list", "--json")
    rows = json.loads(out)
    assert [row for row in rows if row["attention"]] == []
    return [row["what"] for row in rows if row["waiting"] or (row["what"] in COMES and not row["sent"])]


async def test_each_query_answers_on_the_demos_data(demo):
    outputs = {}
    for path in QUERIES:
        rows = await demo.rows(path.read_text())
        assert rows or path.stem in MAY_BE_EMPTY, path.stem
        outputs[path.stem] = rows
    if os.environ.get("UPDATE_SNAPSHOTS"):
        DOCUMENT.write_text(document(outputs))
    text = DOCUMENT.read_text()
    for path in QUERIES:
        assert f"[{path.name}]({path.name})" in text
        if rows := outputs[path.stem]:
            assert f"| {' | '.join(rows[0])} |" in text, path.stem
    for panel, sql in panels():
        await demo.rows(sql)
        assert panel
    assert len(panels()) >= 6


def panels():
    """The panels of the dashboard for ClickHouse with their queries, as Grafana sends them for the last 30 days."""
    found = []
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel.get("targets", []):
            sql = (
                target["rawSql"]
                .replace("$__fromTime", "now() - INTERVAL 30 DAY")
                .replace("$__toTime", "now()")
            )
            found.append((panel["title"], sql))
    return found


def document(outputs):
    """The page with all queries and what they said."""
    lines = [
        "# Queries for ClickHouse", "",
        'They run on the tables of a sink with `database_map = "ootbot"`, in its database:', "",
        "```console", "$ clickhouse client --database ootbot < docs/sinks/pass_rate_by_backend.sql", "```", "",
        "Views named `v_...` show what is true now; the tables behind them hold versions.",
        "Each output below is what `ootbot demo` stores, at most eight rows; a nightly test runs them all.", "",
    ]  # fmt: skip
    for path in QUERIES:
        first = path.read_text().partition("\n")[0].removeprefix("-- ")
        lines += [
            f"## {path.stem.replace('_', ' ').capitalize()}",
            "",
            f"{first} [{path.name}]({path.name})",
            "",
        ]
        rows = outputs[path.stem][:SHOWN]
        if rows:
            lines += [f"| {' | '.join(rows[0])} |", f"|{'---|' * len(rows[0])}"]
            lines += [f"| {' | '.join(shown(value) for value in row.values())} |" for row in rows]
        else:
            lines.append("The demo has none of these.")
        lines.append("")
    return "\n".join(lines)


def shown(value):
    text = "" if value is None else str(value)
    return text.replace("|", "\\|").replace("\n", " ")[:80] or " "
