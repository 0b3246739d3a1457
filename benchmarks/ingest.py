"""Webhooks: how many, how fast, what becomes of them, and what `ootbot serve` needs for it.

    python3 dev.py bench ingest [--only rates,half_load,...] [--rounds 5] [--seconds 4] [--rows 5000000] [--json]

Measured is `ootbot serve` as the README starts it; peers that cannot be installed are named as skipped. Rounds are
interleaved; every figure is the median of its rounds, with the least and the most. At the end each target is named,
and whether it is met. The parts, in their order:

    rates      webhooks a second beside others that take them    half_load  response times at half that rate
    applied    stored deliveries that become records, and soon   cells      what the grid of a branch adds to that
    views      200 cached views a second beside 200 webhooks     postgres   the same on PostgreSQL, one worker and two
    start      start to ready, and memory                        memory     memory after many deliveries
    nginx      webhooks a second behind nginx, beside probot behind nginx
    rows       a database with --rows rows beside a new one (only where that is given)
"""  # fmt: skip

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.support.machine import describe, show
from benchmarks.webhooks import (
    applying,
    behind_nginx,
    beside_pages,
    large,
    on_postgres,
    rates,
    reach,
    starting,
)
from bot.core import log_output

PARTS = ("rates", "half_load", "nginx", "applied", "cells", "views", "postgres", "start", "memory", "rows")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default=",".join(PARTS), help="parts, comma separated")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--backlog", type=int, default=20_000, help="deliveries that wait to be applied")
    parser.add_argument(
        "--settled", type=float, default=rates.SETTLED, help="seconds to let each start go by"
    )
    parser.add_argument("--probot", help="a folder to install it in, used again when it is there")
    parser.add_argument("--rows", type=int, default=0, help="also with that many rows stored before")
    parser.add_argument("--view-rows", type=int, default=beside_pages.ROWS, help="behind the pages viewed")
    parser.add_argument("--deliveries", type=int, default=100_000, help="sent for the memory figure")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    chosen = options.only.split(",")
    if unknown := set(chosen) - set(PARTS):
        parser.error(f"no part is named {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    result = {"name": "ingest", "machine": describe(), "rounds": options.rounds}
    result |= measured(chosen, options)
    result["reach"] = reach.reached(result["ours"] | result["ratios"])
    show(result, as_json=options.json)


def measured(chosen: list[str], options) -> dict:
    """Return what the parts found."""
    ours, peers, ratios, rate = {}, {}, {}, None
    rounds, seconds = options.rounds, options.seconds
    if "rates" in chosen:
        taken = rates.measure(rounds, seconds, options.probot, options.settled)
        ours, peers, ratios = rates.figures(taken)
        peers["skipped"] = taken.skipped
        rate = ours[f"{ours['as started by default']}, deliveries of 9 KB per second"]["median"]
    if "half_load" in chosen:
        ours |= rates.half_load(rounds, seconds, rate, options.settled)
    if "nginx" in chosen:
        behind = behind_nginx.measure(rounds, seconds, options.probot, options.settled)
        ours, peers, ratios = ours | behind[0], peers | behind[1], ratios | behind[2]
    if "applied" in chosen:
        ours |= applying.applied(rounds, seconds, options.backlog)
        ours |= applying.visible(1, seconds, options.settled)
    if "cells" in chosen:
        ours |= applying.cells(rounds, options.backlog)
    if "views" in chosen:
        ours |= beside_pages.measure(rounds, seconds, options.view_rows, options.settled)
    if "postgres" in chosen:
        found, compared = on_postgres.measure(rounds, seconds, options.backlog)
        ours, ratios = ours | found, ratios | compared
    if "start" in chosen:
        ours |= starting.starts(rounds, options.settled)
    if "memory" in chosen:
        ours |= starting.under_load(options.deliveries)
    if "rows" in chosen and options.rows:
        found, compared = large.measure(rounds, seconds, options.rows, options.backlog)
        ours, ratios = ours | found, ratios | compared
    return {"ours": ours, "peers": peers, "ratios": ratios}


if __name__ == "__main__":
    log_output.configure(fmt="console", level="critical")  # what is printed is the result
    main()
