"""Do the alert rules ask for metrics that exist, and does the page explain each of them?"""

import importlib
import re
import subprocess
import sys
from pathlib import Path

import prometheus_client
import yaml

import bot.app
from bot.core import metrics
from bot.features import FEATURES

ROOT = Path(__file__).parents[2]
RULES = yaml.safe_load((ROOT / "deploy" / "prometheus" / "ootbot.rules.yml").read_text())
PAGE = (ROOT / "docs" / "alerts.md").read_text()
OURS = re.compile(r"ootbot_[a-z_]+")


def exported() -> dict[str, set[str]]:
    """Every metric of ours as /metrics names it, with its labels."""
    assert bot.app  # every module that counts is imported
    found = {}
    own = [importlib.import_module(one.metrics.partition(":")[0]) for one in FEATURES if one.metrics]
    for metric in [value for module in (metrics, *own) for value in vars(module).values()]:
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


def test_what_an_alert_counts_from_nothing_is_there_before_it_happens():
    """increase() of a series sees no first value: one that appears with its first event counts that as none."""
    fresh = "import bot.app, prometheus_client as it; print(it.generate_latest().decode())"
    shown = subprocess.run([sys.executable, "-c", fresh], capture_output=True, text=True, check=True).stdout
    counted = [re.match(r"increase\(([^[]+)\[", rule["expr"]) for rule in rules() if "> 0" in rule["expr"]]
    for series in filter(None, counted):
        assert f"\n{series[1]} 0.0" in shown


def test_an_outage_is_seen_where_the_target_goes_with_the_pod():
    (down,) = [rule["expr"] for rule in rules() if rule["alert"] == "OotbotDown"]
    assert down == 'absent(up{job="ootbot"}) or up{job="ootbot"} == 0'


def test_a_bot_that_has_heard_nothing_yet_is_not_quiet():
    (quiet,) = [rule["expr"] for rule in rules() if rule["alert"] == "OotbotQuiet"]
    since, _, ever = quiet.partition(" and ")
    assert since.endswith("> 172800")
    assert ever == "max(ootbot_last_delivery_timestamp_seconds) > 0"  # 0: none so far


def test_what_the_page_scrapes_is_the_job_of_the_rules_and_finds_the_pods():
    shown = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)]
    alone, pods = (each for block in shown for each in block["scrape_configs"])
    for rule in rules():
        assert set(re.findall(r'job="(\w+)"', rule["expr"])) <= {alone["job_name"]} == {pods["job_name"]}
    folder = ROOT / "deploy" / "kubernetes"
    template = yaml.safe_load((folder / "statefulset.yaml").read_text())["spec"]["template"]
    (port,) = template["spec"]["containers"][0]["ports"]
    meta = {"__meta_kubernetes_pod_container_port_name": port["name"]}
    for label, value in template["metadata"]["labels"].items():
        meta["__meta_kubernetes_pod_label_" + re.sub(r"\W", "_", label)] = value
    for kept in pods["relabel_configs"]:
        (source,) = kept["source_labels"]
        assert re.fullmatch(kept["regex"], meta[source])
    namespace = yaml.safe_load((folder / "namespace.yaml").read_text())["metadata"]["name"]
    assert pods["kubernetes_sd_configs"][0]["namespaces"]["names"] == [namespace]


def test_the_page_explains_every_alert_and_every_metric():
    table = dict(re.findall(r"^\| `(Ootbot\w+)` \| (.+) \|$", PAGE, re.MULTILINE))
    assert set(table) == {rule["alert"] for rule in rules()}
    documented = {name.removesuffix("_bucket") for name in OURS.findall(PAGE)}
    wanted = {re.sub(r"_(bucket|sum|count)$", "", name) for name in exported()}
    assert wanted - documented == set(), "say in docs/alerts.md what they mean"
    assert documented - wanted == set(), "docs/alerts.md names metrics that do not exist"


def test_metrics_of_a_label_have_few_values_in_the_code():
    for name, labels in exported().items():
        # repositories, branches and metrics are those of the settings, and limited
        if name in {"ootbot_trunk_broken", "ootbot_metric_regressed"}:
            continue
        assert not labels & {"repo", "backend", "sha", "delivery", "path", "login"}, name
