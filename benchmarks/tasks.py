"""Processor time of a pull request's event and its two tasks, when nothing is to be sent: what waits for no network.

    python3 dev.py bench tasks [--rounds 3] [--events 200] [--json]

The real worker on SQLite applies `opened` events, each of a pull request of its own, and runs the tasks they cause. A
worker's SQLite runs in its own thread; that of a process which also answers requests runs in another.
"""  # fmt: skip

from __future__ import annotations

import argparse
import asyncio
import resource
import sys
import tempfile
import uuid
from pathlib import Path

import uvloop

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.support.load import pull_request
from benchmarks.support.machine import describe, median, show
from benchmarks.support.servers import settings
from bot.app import make_context, make_worker
from bot.core import log_output
from bot.ingest.inbox import Incoming

WAYS = {"in a worker's process": True, "in a process that answers requests, too": False}
AT_ONCE = 50
WARM = 50  # events before the measured ones: statements are compiled, caches filled


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--events", type=int, default=200)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    log_output.configure(fmt="json", level="error")
    taken: dict[str, list[float]] = {name: [] for name in WAYS}
    for _ in range(options.rounds):
        for name, inline in WAYS.items():
            with tempfile.TemporaryDirectory() as folder:
                taken[name].append(uvloop.run(cost(folder, options.events, inline=inline)))
    costs = {name: median(values) for name, values in taken.items()}
    own, shared = costs.values()
    result = {
        "name": "tasks",
        "machine": describe(),
        "rounds": options.rounds,
        "ours": {f"processor ms, {name}": cost for name, cost in costs.items()},
        "peers": {},
        "ratios": {"worker's process / the other": round(own / shared, 2)},
    }
    show(result, as_json=options.json)


async def cost(folder: str, events: int, *, inline: bool) -> float:
    """Return the processor milliseconds of one event and its tasks."""
    async with make_context(settings(folder, 1, None), inline=inline) as context:
        worker = make_worker(context)
        await worker.prepare()
        await put(context, range(1, WARM + 1))
        while await worker.step():
            pass
        await put(context, range(WARM + 1, WARM + events + 1))
        before = cpu()
        while await worker.step():
            pass
        return (cpu() - before) / events * 1000


async def put(context, numbers: range) -> None:
    """Store one event for each number."""
    template = (
        pull_request(9_000).replace(b'"org/project"', b'"org/upstream"').replace(b'"edited"', b'"opened"')
    )
    bodies = [opened(template, number) for number in numbers]
    for start in range(0, len(bodies), AT_ONCE):
        await asyncio.gather(*(context.intake.put(one) for one in bodies[start : start + AT_ONCE]))


def opened(template: bytes, number: int) -> Incoming:
    """The event of a pull request with a head of its own."""
    body = template.replace(b'"id": 3, "number": 7', b'"id": %d, "number": %d' % (number, number))
    body = body.replace(b"b" * 40, b"%040x" % number)
    return Incoming(guid=str(uuid.uuid4()), event="pull_request", foreign=False, body=body)


def cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
