"""Do the alert rules ask for metrics that exist, and does the page explain each of them?"""

from __future__ import annotations

import re
from pathlib import Path

import prometheus_client
import yaml

import bot.app
from bot import metrics

ROOT = Path(__file__).parents[2]
RULES = yaml.safe_load((ROOT / "deploy" / "prometheus" / "ootbot.rules.yml").read_text())
PAGE = (ROOT / "docs" / "alerts.md").read_text()
OURS = re.compile(r"ootbot_[a-z_]+")


def exported() -> dict[str, set[str]]:
    """Every metric of ours as /metrics names it, with its labels."""
    assert bot.app  # every module that counts is imported
    found = {}
    for metric in vars(metrics).values():
        if isinstance(metric, prometheus_client.metrics.MetricWrapperBase):
            (family,) = metric.describe()
            labels = set(metric._labelnames)
            suffixes = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}.get(
                family.type, ("",)
            )
            found |= {
                family.name + suffix: labels | ({"le"} if suffix == "_bucket" else set())
                for suffix in suffixes
            }
    return found


def rules() -> list[dict]:
    return [rule for group in RULES["groups"] for rule in group["rules"]]


def test_every_rule_is_complete():
    for rule in rules():
        assert rule.keys() <= {"alert", "expr", "for", "labels", "annotations"}, rule
        assert re.fullmatch(r"Ootbot[A-Za-z]+", rule["alert"])
        assert re.fullmatch(r"\d+[smh]", rule.get("for", "0s"))
        assert rule["labels"]["severity"] in {"page", "ticket"}
        assert rule["annotations"]["summary"].endswith(".")
        assert rule["expr"].count("(") == rule["expr"].count(")")
    names = [rule["alert"] for rule in rules()]
    assert len(set(names)) == len(names)


def test_every_rule_asks_for_metrics_and_labels_that_exist():
    known = exported()
    for rule in rules():
        for name, selector in re.findall(r"(ootbot_[a-z_]+)(?:\{([^}]*)\})?", rule["expr"]):
            assert name in known, rule["alert"]
            assert set(re.findall(r"(\w+)\s*(?:=|!=|=~|!~)", selector)) <= known[name], rule["alert"]


def test_the_page_explains_every_alert_and_every_metric():
    table = dict(re.findall(r"^\| `(Ootbot\w+)` \| (.+) \|$", PAGE, re.MULTILINE))
    assert set(table) == {rule["alert"] for rule in rules()}
    documented = {name.removesuffix("_bucket") for name in OURS.findall(PAGE)}
    wanted = {re.sub(r"_(bucket|sum|count)$", "", name) for name in exported()}
    assert wanted - documented == set(), "say in docs/alerts.md what they mean"
    assert documented - wanted == set(), "docs/alerts.md names metrics that do not exist"


def test_metrics_of_a_label_have_few_values_in_the_code():
    for name, labels in exported().items():
        assert not labels & {"repo", "backend", "sha", "delivery", "path", "login"}, name
