"""The options of metrics."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from bot.ci.extras.parse.parsed import NAME
from bot.core.settings import option

Alerts = tuple[tuple[str, str, float], ...]  # metric, value, factor
FACTOR_MOST = 1_000.0


def parse_alerts(text: str) -> Alerts:
    """Read the setting: a JSON object from a metric and one of its values to a factor; raises ValueError."""
    try:
        given = msgspec.json.decode(text, type=dict[str, float])
    except msgspec.MsgspecError as error:
        raise ValueError(
            f'write a table from a metric and its value to a factor, as in {{"pytest.collect seconds": 1.2}}: {error}'
        ) from None
    return tuple(_alert(name, factor) for name, factor in given.items())


def _alert(name: str, factor: float) -> tuple[str, str, float]:
    parts = name.split()
    if len(parts) != 2 or not all(NAME.fullmatch(part) for part in parts):
        raise ValueError(f"{name!r} is not a metric and one of its values, as in 'pytest.collect seconds'")
    if not 0 < factor <= FACTOR_MOST or factor == 1:
        raise ValueError(
            f"{name}: the factor is above 1 for what may not rise, below 1 for what may not fall"
        )
    return (parts[0], parts[1], factor)


def format_alerts(alerts: Alerts) -> str:
    """Return alerts as the setting is written."""
    return msgspec.json.encode({f"{metric} {value}": factor for metric, value, factor in alerts}).decode()


@dataclass(frozen=True, kw_only=True)
class MetricSettings:
    """Which metrics may not get worse."""

    ci_metric_alerts: Alerts = option(  # noqa: RUF009 - a field, as the others
        "Metrics that may not get worse, each with a factor: ootbot_metric_regressed is 1 while the median of a "
        "week is over so many times that of the four weeks before, or below it for a factor under 1; a table, such "
        'as {"pytest.collect seconds": 1.2}.',
        parse_alerts,
        default=(),
        show=format_alerts,
    )
