"""Break things, then look whether anything was lost or done twice: `python3 dev.py chaos`."""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path

from bot.core.log_output import configure
from tests.chaos import page, servers
from tests.chaos.scenario import Trial, percentile
from tests.chaos.scenarios import SCENARIOS
from tests.process import ROOT

RESULTS = ROOT / "reliability.json"


def main() -> int:
    """Run what was asked for; 1 when anything failed."""
    options = parse()
    configure(fmt="console", level="error")
    warnings.simplefilter("ignore", ResourceWarning)
    chosen = [one for one in SCENARIOS if one.id in options.only or not options.only]
    form = "nightly" if options.nightly else "default"
    results = []
    with servers.Servers() as postgres:
        for scenario in chosen:
            n = options.minutes if scenario.id == "soak" and options.minutes else options.times
            n = n or scenario.n(form)
            results.append(asyncio.run(tried(scenario, n, options, postgres)))
    RESULTS.write_text(json.dumps(results, indent=2) + "\n")
    if options.json:
        sys.stdout.write(json.dumps(results, indent=2) + "\n")
    if options.write:
        page.write(results)
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


if __name__ == "__main__":
    sys.exit(main())
