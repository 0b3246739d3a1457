"""How do the results get into docs/reliability.md? One table, with date, commit and machine."""

from __future__ import annotations

import datetime as dt
import subprocess

from benchmarks.machine import describe
from tests.process import ROOT

PAGE = ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- results: written by dev.py chaos -->", "<!-- end of results -->"
HEAD = "| id | what is broken | times | failures | p50 | p95 | p99 | of | counted |\n|---|---|---|---|---|---|---|---|---|"


def write(results, form):
    """Put the results into the page, in place of those of the last run."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    lines = [BEGIN, "", heading(form), "", HEAD, *(row(one) for one in results), "", END]
    PAGE.write_text(before + "\n".join(lines) + after)


def heading(form):
    """Return when, what and where."""
    machine = describe()
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, check=False, capture_output=True, text=True
    )
    command = "`python3 dev.py chaos --nightly`" if form == "nightly" else "`python3 dev.py chaos`"
    return (
        f"{command}, {dt.datetime.now(tz=dt.UTC).date()}, commit {commit.stdout.strip() or 'unknown'}, "
        f"{machine['cores']} cores of {machine['cpu']}, Python {machine['python']}, {machine['system']}, "
        f"fsync p99 {machine['fsync_p99_ms']} ms."
    )


def row(one):
    """Return the line of one scenario."""
    points = [figure(one[name]) for name in ("p50", "p95", "p99")]
    counted = ", ".join(f"{number:,} {what}" for what, number in one["counts"].items())
    cells = [
        f"`{one['id']}`",
        one["breaks"],
        f"{one['n']:,}",
        str(one["failures"]),
        *points,
        one["measures"],
        counted,
    ]
    return f"| {' | '.join(cells)} |"


def figure(value):
    return "" if value is None else f"{value:.2f}" if value < 10 else f"{value:.0f}"
