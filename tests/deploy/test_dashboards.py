"""Do the panels of the dashboard for Prometheus ask for metrics and labels that exist, and is every panel complete?"""

import json
import re
from pathlib import Path

import pytest
from prometheus_client import REGISTRY

import bot.app
import bot.oot.culprits.rows
import bot.sinks.sending

FOLDER = Path(__file__).parents[2] / "deploy" / "grafana"
OURS = re.compile(r"(ootbot_[a-z_]+)(?:\{([^}]*)\})?")
GROUPED = re.compile(r"by \(([^)]*)\)")
LEGEND = re.compile(r"\{\{(\w+)\}\}")
FUNCTIONS = {"histogram_quantile", "sum", "max", "min", "rate", "by"}


def exported():
    """Every metric of ours as /metrics names it, with its labels."""
    assert bot.app
    assert bot.sinks.sending
    assert bot.oot.culprits.rows
    found = {}
    for metric, names in REGISTRY._collector_to_names.items():
        labels = set(getattr(metric, "_labelnames", ()))
        found |= {name: labels | ({"le"} if name.endswith("_bucket") else set()) for name in names}
    return found


def panels(name):
    return json.loads((FOLDER / name).read_text())["panels"]


@pytest.mark.parametrize("name", ["prometheus.json", "clickhouse.json"])
def test_every_panel_is_complete(name):
    found = panels(name)
    assert len({panel["id"] for panel in found}) == len({panel["title"] for panel in found}) == len(found)
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in found]
    assert len(set(places)) == len(places)
    for panel in found:
        assert panel["datasource"]["uid"] == "${datasource}", panel["title"]
        assert panel["targets"], panel["title"]


def test_prometheus_panels_ask_for_metrics_and_labels_that_exist():
    known = exported()
    for panel in panels("prometheus.json"):
        for target in panel["targets"]:
            expr = target["expr"]
            assert expr.count("(") == expr.count(")"), expr
            assert set(re.findall(r"(\w+) ?\(", expr)) <= FUNCTIONS, expr
            asked = OURS.findall(expr)
            assert asked, expr
            labels = set.union(*(known[name] for name, _ in asked))
            chosen = {pair.partition("=")[0] for _, selector in asked for pair in selector.split(",") if pair}
            grouped = {label.strip() for group in GROUPED.findall(expr) for label in group.split(",")}
            assert chosen | grouped <= labels, expr
            assert set(LEGEND.findall(target["legendFormat"])) <= grouped, expr


def test_clickhouse_panels_ask_only_the_views_of_what_is_true_now():
    for panel in panels("clickhouse.json"):
        (target,) = panel["targets"]
        tables = re.findall(r"(?:FROM|JOIN) (\w+)", target["rawSql"])
        assert tables, panel["title"]
        assert all(table.startswith("v_") for table in tables), panel["title"]
        assert "$__fromTime" in target["rawSql"], panel["title"]
