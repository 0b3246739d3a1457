"""Page views beside webhooks: both at a rate of their own, whatever the answers take."""

from __future__ import annotations

from benchmarks.support import generator
from benchmarks.support.generator import Running, viewed, webhook
from benchmarks.support.load import workflow_job

WEBHOOKS = 200  # a second
CONNECTIONS = 16


def together(port: int, paths: list[str], *, rate: float, seconds: float) -> dict[str, float]:
    """View pages in turn, so many a second, while webhooks come in; returns milliseconds."""
    options = {"seconds": seconds, "connections": CONNECTIONS}
    webhooks = Running(port, [webhook("workflow_job", workflow_job())], rate=WEBHOOKS, **options)
    views = Running(port, [viewed(path) for path in paths], rate=rate, **options)
    received, seen = webhooks.result(), generator.complete(views.result())
    return {
        "views": seen["answers"],
        "views_p50_ms": seen["p50_ms"],
        "views_p95_ms": seen["p95_ms"],
        "webhooks_per_second": received["per_second"],
        "webhooks_p99_ms": received["p99_ms"],
        "answers_other_than_202": received["answers"]
        - received["statuses"].get("202", 0)
        + received["errors"],
    }


def each_once(port: int, paths: list[str]) -> None:
    """View each page once, so that what it reads is warm."""
    generator.run(port, [viewed(path) for path in paths], seconds=60, count=len(paths), connections=1)
