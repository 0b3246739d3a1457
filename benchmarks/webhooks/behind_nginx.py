"""How many webhooks does `ootbot serve` take behind nginx as docs/install-proxy.md sets it up, and how many probot?"""

from __future__ import annotations

import re
import urllib.request
from typing import TYPE_CHECKING

from benchmarks.support import deliveries, generator, proxies
from benchmarks.support.machine import Server, figure, ratio
from benchmarks.support.serve import by_default
from benchmarks.webhooks.rates import SETTLED, WARM, find_peers, serving, started

if TYPE_CHECKING:
    from benchmarks.support.serve import Bot

READ = re.compile(r'^ootbot_deliveries_read_total\{by="(\w+)"\} (\S+)', re.MULTILINE)


def measure(
    rounds: int, seconds: float, modules: str | None, settled: float = SETTLED
) -> tuple[dict, dict, dict]:
    """Return our figures, the peers', and the ratios; probot is found in the folder `modules`, or installed."""
    if "nginx" not in proxies.installed():
        return {}, {"skipped behind nginx": "nginx is not here"}, {}
    peers, skipped = find_peers(modules)
    rates: dict[str, list[float]] = {}
    shares: list[float] = []
    own = serving(by_default())
    for _ in range(rounds):
        with started(None, settled) as bot:
            rates.setdefault(own, []).append(_rate(bot, seconds))
            shares.append(_fast_share(bot))
        for name, command in peers.items():
            with Server(*command()) as server:
                rates.setdefault(name, []).append(_rate(server, seconds))
    return (
        {
            f"{own}, behind nginx, deliveries of 9 KB per second": figure(rates[own]),
            "share that took the fast path behind nginx": figure(shares, 3),
        },
        {f"{name}, behind nginx, per second": figure(rates[name]) for name in peers}
        | {"skipped behind nginx": skipped},
        {f"{own} / {name}, behind nginx": ratio(rates[own], rates[name]) for name in peers},
    )


def _rate(server: Server, seconds: float) -> float:
    sent = deliveries.same_job()
    with proxies.in_front("nginx", server.port) as port:
        generator.run(port, sent, seconds=min(WARM, seconds))
        return generator.run(port, sent, seconds=seconds)["per_second"]


def _fast_share(bot: Bot) -> float:
    with urllib.request.urlopen(f"{bot.url}/metrics") as answer:
        counts = {by: float(count) for by, count in READ.findall(answer.read().decode())}
    return counts["fast_path"] / sum(counts.values())
