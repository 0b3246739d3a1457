"""How do results get into docs/? The last of each scenario, in one JSON and as one table, with date, commit and machine."""

from __future__ import annotations

import datetime as dt
import json
import subprocess

from benchmarks.support.machine import describe
from tests.chaos.scenarios import SCENARIOS
from tests.process import ROOT

KEPT = ROOT / "docs" / "reliability.json"
PAGE = ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- results: written by dev.py chaos --write -->", "<!-- end of results -->"
HEAD = (
    "| id | what is broken | times | failures | p50 | p95 | p99 | of | counted | date, commit |\n"
    "|---|---|---:|---:|---:|---:|---:|---|---|---|"
)


def write(results):
    """Keep these results in place of the earlier ones of the same scenarios, and draw the table anew."""
    origin = {"date": str(dt.datetime.now(tz=dt.UTC).date()), "commit": commit(), "machine": describe()}
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else []
    newest = {one["id"]: one for one in kept} | {one["id"]: one | origin for one in results}
    ordered = [newest[scenario.id] for scenario in SCENARIOS if scenario.id in newest]
    KEPT.write_text(json.dumps(ordered, indent=2) + "\n")
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    machines = sorted({machine(one["machine"]) for one in ordered})
    lines = [BEGIN, "", f"On {'; '.join(machines)}.", "", HEAD, *(row(one) for one in ordered), "", END]
    PAGE.write_text(before + "\n".join(lines) + after)


def commit():
    """Return what was tried."""
    told = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, check=False, capture_output=True, text=True
    )
    return told.stdout.strip() or "unknown"


def machine(described):
    """Return where, in words."""
    return f"{described['cores']} cores of {described['cpu']}, Python {described['python']}, {described['system']}"


def row(one):
    """Return the line of one scenario."""
    cells = [
        f"`{one['id']}`", one["breaks"], f"{one['n']:,}", str(one["failures"]),
        *(figure(one[name]) for name in ("p50", "p95", "p99")), one["measures"],
        ", ".join(f"{number:,} {what}" for what, number in one["counts"].items()),
        f"{one['date']}, {one['commit']}",
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def figure(value):
    return "" if value is None else f"{value:.2f}" if value < 10 else f"{value:.0f}"
