"""What capabilities declare beyond records: the objects, items and rows that their exports become."""

from __future__ import annotations

import json

import pytest

from bot.core.feature import load, load_each
from bot.features import FEATURES
from tests.harness import UPSTREAM

EXPORTS = {export.name: export for found in load_each(FEATURES, "exports") for export in found}
DAY = 20_779  # 2026-11-22


def made(name, row, layout="upstream"):
    export = EXPORTS[name]
    return load(export.shapes[layout].make)(export, row)


def content(one):
    return [json.loads(line) for line in b"".join(one.content()).splitlines()]


def test_contributions_of_a_day_are_one_object_with_upstreams_fields():
    row = {"repository_id": 1, "repo": UPSTREAM, "day": DAY, "pr_count": 3, "users": ["ada", "bob"]}
    (one,) = made("external_contribution_counts", row)
    assert one.key == f"external_contribution_counts/2026-11-22/{UPSTREAM}"
    assert content(one) == [{"date": "2026-11-22", "pr_count": 3, "user_count": 2, "users": ["ada", "bob"]}]


def test_a_search_for_a_culprit_lies_below_the_repository_that_is_searched():
    (one,) = made("bisects", {"id": "b-1", "upstream_repo": UPSTREAM, "culprit_sha": "a" * 40})
    assert (one.key, content(one)[0]["culprit_sha"]) == (f"bisects/{UPSTREAM}/b-1", "a" * 40)


@pytest.mark.parametrize(
    ("name", "row", "key"),
    [
        (
            "test_exclusions",
            {"repository_id": 1, "run_id": 2, "run_attempt": 1, "job_id": 3, "object_id": 4, "files": ["a"]},
            f"test_exclusions/{UPSTREAM}/2/1/3/4",
        ),
        (
            "td_misses",
            {"repository_id": 1, "pr_number": 7, "test_id": 9, "file": "a"},
            f"td_misses/{UPSTREAM}/7/9",
        ),
    ],
)  # fmt: skip
def test_what_selection_left_out_and_missed(name, row, key):
    (one,) = made(name, row | {"repo": UPSTREAM})
    assert one.key == key


def job_of(provider):
    return {
        "repository_id": 1, "repo": UPSTREAM, "provider": provider, "project": "org/../x", "job_id": "0193",
        "status": "completed", "merge_state": {"guid": "g"}, "deleted_at": None, "source": None,
    }  # fmt: skip


def test_a_job_of_another_ci_is_an_object_whose_key_leads_nowhere_else():
    (one,) = made("provider_job", job_of("buildkite"))
    assert one.key == f"provider_job/{UPSTREAM}/buildkite/org%2F..%2Fx/0193"
    assert "merge_state" not in content(one)[0]


def test_only_buildkite_has_tables_of_items():
    (one,) = made("provider_job", job_of("buildkite"), "dynamodb")
    assert (one.table, one.key) == ("vllm-buildkite-job-events", f"{UPSTREAM}/0193")
    assert one.attributes["status"] == "completed"
    assert made("provider_job", job_of("circleci"), "dynamodb") == []


def test_a_classification_has_a_version_of_its_own_in_the_item_of_its_job():
    verdict = {"rule": "pytest failure", "line": "FAILED a", "line_num": 3, "captures": ["a"], "context": []}
    row = {"repository_id": 1, "repo": UPSTREAM, "job_id": 5, "verdicts": [verdict]}
    (one,) = made("verdicts", row, "dynamodb")
    assert (one.table, one.key, one.version) == ("workflow-job", f"{UPSTREAM}/5", "_classification_version")
    assert one.attributes["torchci_classification"]["rule"] == "pytest failure"


def test_lines_of_metrics_have_upstreams_columns():
    export = EXPORTS["ossci_uploaded_metrics"]
    copy = load(export.shapes["clickhouse.upstream"].make)(export)
    line = {
        "source": "tools/stats.py:main",
        "metric": "td",
        "at": 1_795_341_600_000,
        "values": {"a": 1.5},
        "labels": {},
    }
    row = dict.fromkeys(("base_name", "job_name", "config", "pr_number", "workflow"))
    row |= {"repo": UPSTREAM, "run_id": 1, "run_attempt": 1, "job_id": 2, "rows": [line]}
    (found,) = copy.rows(row)
    assert found.keys() <= copy.table.columns.keys()
    assert (found["metric_name"], found["calling_file"], json.loads(found["info"])) == (
        "td",
        "tools/stats.py",
        {"a": 1.5},
    )
