"""Every benchmark in short rounds, as one document.

    python3 dev.py bench all [--minutes 40] [--only ingest,callback] [--probot FOLDER] [--json]

Figures to compare come from the benchmark itself, with more rounds. The time is a bound: none gets more than a third of
it, and one that does not end, or cannot run, is named under `failed`. Exit code 1 says that there is one.
"""  # fmt: skip

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.support.machine import show

HERE = Path(__file__).parent
SHORT = {
    "callback": "--rounds 3 --seconds 2",
    "collect": "--rounds 2 --seconds 3 --jobs 100 --megabytes 1",
    "hud": "--rows 100000 --cells 20000 --seconds 4 --views 20",
    "ingest": "--rounds 3 --seconds 2 --backlog 16000 --deliveries 20000",
    "logs": "--rounds 1",
    "monitor": "--seconds 10",
    "publish": "--minutes 4 --pushes 2",
    "scale": "--rounds 1 --deliveries 300 --pushes 1",
    "sinks": "--rounds 1 --backlog 3000 --objects 1000 --rows 15000",
    "tasks": "--rounds 2 --events 100",
    "tests": "--rounds 1 --cases 50000 --files 10 --run-cases 30000",
    "utilization": "--rounds 2 --views 15",
}  # options of a benchmark here; any other runs as by default
ENDS_WITHIN = 20.0  # seconds, once asked


def main() -> int:
    names = sorted(path.stem for path in HERE.glob("*.py") if path != Path(__file__))
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=40, help="for all of them")
    parser.add_argument("--only", default=",".join(names), help="names, comma separated")
    parser.add_argument("--probot", help="the folder probot is installed in")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    chosen = options.only.split(",")
    if unknown := set(chosen) - set(names):
        parser.error(f"no benchmark is named {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    end = time.monotonic() + options.minutes * 60
    found: dict[str, dict] = {}
    failed: dict[str, str] = {}
    for name in chosen:
        words = SHORT.get(name, "").split()
        if name == "ingest" and options.probot:
            words += ["--probot", options.probot]
        print(f"{name} ...", file=sys.stderr, flush=True)
        try:
            found[name] = run(name, words, min(end - time.monotonic(), options.minutes * 20))
        except RuntimeError as error:
            failed[name] = str(error)
    if options.json:
        print(json.dumps(document(found, failed), indent=2))
    else:
        for one in found.values():
            show(one, as_json=False, warn=False)
        for name, why in failed.items():
            print(f"\n{name} failed: {why}")
    return 1 if failed else 0


def document(found: dict[str, dict], failed: dict[str, str]) -> dict:
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=HERE, check=False, capture_output=True, text=True
    )
    return {
        "name": "all",
        "date": str(dt.datetime.now(tz=dt.UTC).date()),
        "commit": commit.stdout.strip() or None,
        "reach": found.get("ingest", {}).get("reach", []),
        "benchmarks": found,
        "failed": failed,
    }


def run(name: str, words: list[str], seconds: float) -> dict:
    """Return what a benchmark measured; raises RuntimeError where it does not end well in that time."""
    if seconds <= 0:
        raise RuntimeError("no time was left for it")
    command = [sys.executable, "-m", f"benchmarks.{name}", *words, "--json"]
    with subprocess.Popen(
        command, cwd=HERE.parent, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            out, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired as error:
            _end(process)
            raise RuntimeError(f"did not end within {seconds:.0f} s") from error
        except BaseException:
            _end(process)
            raise
    if process.returncode:
        raise RuntimeError(f"ended with code {process.returncode}: see above")
    return json.loads(out)


def _end(process: subprocess.Popen) -> None:
    """End a benchmark and whatever it started, which is one process group."""
    for number, wait in ((signal.SIGTERM, ENDS_WITHIN), (signal.SIGKILL, None)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=wait)
            return


if __name__ == "__main__":
    sys.exit(main())
