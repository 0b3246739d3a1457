"""How many webhooks does `ootbot serve` take, beside others that take them?

Each round starts every server afresh. Those that a user would start have all cores, which they share with the
generator; the endpoint alone and its twin without a store have one core, the generator has the other.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.support import deliveries, generator
from benchmarks.support.generator import webhook
from benchmarks.support.load import pull_request
from benchmarks.support.machine import HERE, Server, figure, ours, ratio
from benchmarks.support.serve import Bot, by_default

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SETTLED = 3.0  # seconds after its start in which a bot does its periodic work for the first time
WARM = 1.0  # seconds of the same load before: some compile what they run often
FAMILY = 3  # processes
ALONE, VERIFYING = "the endpoint alone, on one core", "verified, not stored, on one core"
GIDGETHUB, PROBOT, PROBOT_FULL = (
    "gidgethub, empty handler",
    "probot, empty handler",
    "probot, better-sqlite3 FULL",
)


@dataclass
class Taken:
    """What each contender did, by round."""

    per_second: dict[str, list[float]] = field(default_factory=dict)
    cpu_us: dict[str, list[float]] = field(default_factory=dict)  # of the server, for each delivery
    generator_share: list[float] = field(default_factory=list)  # of one core
    skipped: list[str] = field(default_factory=list)

    def add(self, name: str, server: Server, requests: list[bytes], seconds: float, **options) -> None:
        generator.run(server.port, requests, seconds=min(WARM, seconds), **options)
        before = server.cpu()
        found = generator.run(server.port, requests, seconds=seconds, **options)
        self.per_second.setdefault(name, []).append(found["per_second"])
        self.cpu_us.setdefault(name, []).append((server.cpu() - before) / found["answers"] * 1e6)
        self.generator_share.append(found["generator_cpu_share"])


def serving(processes: int) -> str:
    return f"ootbot serve, {processes} process{'es' if processes > 1 else ''}"


def measure(rounds: int, seconds: float, modules: str | None, settled: float = SETTLED) -> Taken:
    """Measure every contender; probot is found in the folder `modules`, or installed."""
    taken, small, large = Taken(), deliveries.same_job(), [webhook("pull_request", pull_request())]
    peers, taken.skipped = find_peers(modules)
    for _ in range(rounds):
        for processes in (1, FAMILY):
            with started(processes, settled) as bot:
                taken.add(serving(processes), bot, small, seconds)
                if processes == by_default():
                    taken.add("24 KB", bot, large, seconds)
        with started(FAMILY, settled, core=0) as bot, bot.listening_alone():
            taken.add(ALONE, bot, small, seconds, core=1)
        with Server(*ours("verify", tempfile.mkdtemp()), core=0) as server:
            taken.add(VERIFYING, server, small, seconds, core=1)
        for name, command in peers.items():
            with Server(*command()) as server:
                taken.add(name, server, small, seconds)
    return taken


@contextlib.contextmanager
def started(processes: int | None = None, settled: float = SETTLED, **options) -> Iterator[Bot]:
    """A bot on a new database, once its start is over."""
    with tempfile.TemporaryDirectory() as folder, Bot(folder, processes=processes, **options) as bot:
        time.sleep(settled)
        yield bot


def find_peers(modules: str | None) -> tuple[dict[str, Callable[[], list[str]]], list[str]]:
    """Return commands of the peers that are there, and what is not there and why.

    Installing probot's SQLite may mean compiling it, which takes minutes.
    """
    peers: dict[str, Callable[[], list[str]]] = {GIDGETHUB: lambda: ours("gidgethub", "-")}
    if not (shutil.which("npm") and shutil.which("node")):
        return peers, ["probot: npm is not here"]
    folder = Path(modules or tempfile.mkdtemp(prefix="probot-"))
    if not (folder / "node_modules").exists():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "package.json").write_text("{}")
        done = subprocess.run(
            ["npm", "install", "--no-audit", "--no-fund", "--silent", "probot", "better-sqlite3"],
            cwd=folder, capture_output=True, check=False,
        )  # fmt: skip
        if done.returncode:
            return peers, ["probot: npm install failed"]
    for name, kind in ((PROBOT, "empty"), (PROBOT_FULL, "sqlite")):
        peers[name] = lambda kind=kind: [
            "node", str(HERE / "probot.mjs"), "{port}", tempfile.mkdtemp(), kind, str(folder)
        ]  # fmt: skip
    return peers, []


def figures(taken: Taken) -> tuple[dict, dict, dict]:
    """Return our figures, the peers', and the ratios."""
    rates, shown = taken.per_second, serving(by_default())
    own = (serving(1), serving(FAMILY), ALONE, VERIFYING)
    ours_ = {f"{name}, deliveries of 9 KB per second": figure(rates[name]) for name in own}
    ours_ |= {f"{name}, processor us a delivery": figure(taken.cpu_us[name]) for name in own}
    ours_ |= {
        "as started by default": shown,
        "deliveries of 24 KB per second": figure(rates["24 KB"]),
        "the generator's share of a core": figure(taken.generator_share, 2),
    }
    peers = {name: rates[name] for name in rates if name in (GIDGETHUB, PROBOT, PROBOT_FULL)}
    ratios = {
        f"{ALONE} / verified, not stored": ratio(rates[ALONE], rates[VERIFYING]),
        "the same by processor time": ratio(taken.cpu_us[VERIFYING], taken.cpu_us[ALONE]),
    }
    ratios |= {
        f"{name} / {peer}": ratio(rates[name], values)
        for name in (serving(1), serving(FAMILY)) for peer, values in peers.items()
    }  # fmt: skip
    return ours_, {f"{name}, per second": figure(values) for name, values in peers.items()}, ratios


def half_load(rounds: int, seconds: float, rate: float | None, settled: float = SETTLED) -> dict:
    """Response times of `ootbot serve` at half the rate it can take, which is measured first unless it is known."""
    if rate is None:
        with started(None, settled) as bot:
            rate = generator.run(bot.port, deliveries.same_job(), seconds=seconds)["per_second"]
    found = []
    for _ in range(rounds):
        with started(None, settled) as bot:
            sent = deliveries.same_job()
            found.append(generator.run(bot.port, sent, seconds=seconds, rate=rate / 2))
    return {
        f"half_load_{name}_ms": figure((one[f"{name}_ms"] for one in found), 2) for name in ("p50", "p99")
    } | {"half_load_per_second": figure(one["per_second"] for one in found)}
