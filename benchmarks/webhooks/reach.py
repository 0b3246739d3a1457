"""What is `ootbot serve` expected to reach, and does it?"""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.support.serve import by_default
from benchmarks.webhooks.rates import ALONE, FAMILY, PROBOT, PROBOT_FULL, serving

VIEWS = "200_cached_views_a_second"


@dataclass(frozen=True)
class Target:
    """`least` or `most` of one figure; `name` is its key among our figures or the ratios."""

    says: str
    name: str
    least: float | None = None
    most: float | None = None


def targets() -> tuple[Target, ...]:
    default = serving(by_default())
    return (
        Target("webhooks, as started by default / probot, empty handler", f"{default} / {PROBOT}", least=1.0),
        Target("webhooks, as started by default / probot with SQLite FULL", f"{default} / {PROBOT_FULL}", least=5),
        Target("p99 at half load, ms", "half_load_p99_ms", most=15),
        Target("the endpoint alone / verify only, one core", f"{ALONE} / verified, not stored", least=0.7),
        Target("applied a second while 500 a second come in", "applied_per_second_at_500", least=3000),
        Target("webhooks' p99 beside 200 cached views a second, ms", f"{VIEWS}_webhooks_p99_ms", most=25),
        Target("these views' p95, ms", f"{VIEWS}_views_p95_ms", most=50),
        Target("PostgreSQL, two processes / one", "postgres, 2 workers / 1, applied per second", least=1.5),
        Target("start to ready, s", f"{default}, start to ready, s", most=1.0),
        Target("memory of three processes, MB (PSS)", f"{serving(FAMILY)}, pss_mb", most=250),
    )  # fmt: skip


def reached(measured: dict) -> list[dict]:
    """Return a line for each target: what was measured (null if it was not), and whether it is met."""
    lines = []
    for target in targets():
        found = measured.get(target.name)
        value = None if found is None else found["median"]
        low = target.least is None or (value is not None and value >= target.least)
        high = target.most is None or (value is not None and value <= target.most)
        wanted = f">= {target.least:g}" if target.least is not None else f"<= {target.most:g}"
        lines.append(
            {
                "name": target.says,
                "target": wanted,
                "measured": found,
                "met": None if found is None else low and high,
            }
        )
    return lines
