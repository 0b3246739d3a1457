"""The queries of docs/sinks and the panels of deploy/grafana on what the demo stores, with the output that is documented."""

from __future__ import annotations

import os
import re

import pytest

pytest.importorskip("chdb")

from tests.sinks.demo_in_clickhouse import ROOT, panels, playing

pytestmark = pytest.mark.nightly
QUERIES = sorted((ROOT / "docs" / "sinks").glob("*.sql"))
DOCUMENT = ROOT / "docs" / "sinks" / "README.md"
SHOWN = 8  # rows of each output
CELLS = re.compile(r"(?<!\\) ?\| ?")
# columns that are other ones each time the demo is played: times, and what is made of the machine's speed
PASSING = {
    "cost_of_infra_failures": {"machine_hours", "last_seen"},
    "first_failing_commits": {"first_bad_commit", "last_good_commit", "since"},
    "pass_rate_by_backend": {"backend", "week", "jobs", "passed", "percent"},  # by the day of the week
    "time_to_culprit": {"median_minutes"},
    "time_to_signal": {"p50_seconds", "p90_seconds"},
}


@pytest.fixture
async def demo(tmp_path):
    async with playing(tmp_path) as found:
        yield found


async def test_each_query_answers_what_is_documented_on_the_demos_data(demo):
    outputs = {path.stem: await demo.rows(path.read_text()) for path in QUERIES}
    if os.environ.get("UPDATE_SNAPSHOTS"):
        DOCUMENT.write_text(document(outputs))
    documented, made = tables(DOCUMENT.read_text()), tables(document(outputs))
    assert documented.keys() == {path.stem for path in QUERIES}
    assert all(outputs.values())
    differing = {name for name, rows in made.items() if documented[name] != rows}
    assert differing == set(), [(documented[name], made[name]) for name in sorted(differing)]
    answers = {panel["title"]: await demo.rows(sql) for panel, sql in panels()}
    assert len(answers) >= 6
    assert [title for title, rows in answers.items() if not rows] == []


def tables(text):
    """The tables of the page by query, in any order of rows, without the cells that are other ones each time."""
    found = {}
    for section in text.split("\n## ")[1:]:
        name = section.partition("\n")[0].lower().replace(" ", "_")
        head, _, *rows = [
            CELLS.split(line.strip())[1:-1] for line in section.splitlines() if line.startswith("|")
        ]
        passing = [place for place, column in enumerate(head) if column in PASSING.get(name, ())]
        for row in rows:
            for place in passing:
                assert row[place].strip(), (name, row)
                row[place] = "..."
        found[name] = [head, *sorted(rows)]
    return found


def document(outputs):
    """The page with all queries and what they said."""
    lines = [
        "# Queries for ClickHouse", "",
        'They run on the tables of a sink with `database_map = "ootbot"`, in its database:', "",
        "```console", "$ clickhouse client --database ootbot < docs/sinks/pass_rate_by_backend.sql", "```", "",
        "Views named `v_...` show what is true now; the tables behind them hold versions.",
        "Each output below is what `ootbot demo` stores, at most eight rows.",
        "A nightly test plays the demo and compares them, but for times and commits, which are other ones each time.", "",
    ]  # fmt: skip
    for path in QUERIES:
        first = path.read_text().partition("\n")[0].removeprefix("-- ")
        lines += [
            f"## {path.stem.replace('_', ' ').capitalize()}",
            "",
            first,
            f"[{path.name}]({path.name})",
            "",
        ]
        rows = outputs[path.stem][:SHOWN]
        if rows:
            lines += [f"| {' | '.join(rows[0])} |", f"|{'---|' * len(rows[0])}"]
            lines += [f"| {' | '.join(shown(value) for value in row.values())} |" for row in rows]
        lines.append("")
    return "\n".join(lines)


def shown(value):
    text = "" if value is None else str(value)
    return text.replace("|", "\\|").replace("\n", " ")[:80] or " "
