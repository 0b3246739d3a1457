"""What exports become: objects, items and rows."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest

from bot.core.feature import load, load_each
from bot.db.exports import Export, StoredItem
from bot.features import FEATURES
from bot.ingest.tables import records
from bot.oot.statistics import histogram
from bot.sinks.driver import Batch, Outgoing, SinkForbidden
from bot.sinks.dynamodb import ITEM_MOST, DynamoDriver, as_attribute, fit_item, size_of
from bot.sinks.settings import parse_sinks
from tests.harness import UPSTREAM
from tests.sinks.dynamo_tables import items

EXPORT = Export(name="x", table=records["workflow_job"], day="received_at")
EXPORTS = {export.name: export for found in load_each(FEATURES, "exports") for export in found}
DAY = 20_779  # 2026-11-22


def driver_of(dynamo_sink):
    (sink,) = parse_sinks(json.dumps(dynamo_sink))
    return DynamoDriver(sink.options)


async def write(driver, attributes, version, *, deleted=False, named="_version"):
    def make(_export, row):
        return [StoredItem(table="x", key="org/a/1", attributes=row, version=named)]

    item = Outgoing(key=(1, 1), row=attributes, deleted=deleted, version=version)
    return await driver.send(Batch(export=EXPORT, make=make, items=[item]))


async def test_what_comes_late_never_reverts_what_is_there(dynamo_sink, aws, prefix):
    driver = driver_of(dynamo_sink)
    try:
        await write(driver, {"status": "completed", "seconds": 1.5}, 20)
        await write(driver, {"status": "in_progress", "seconds": None}, 10)
        found = items(aws, f"{prefix}x")["org/a/1"]
        assert (found["status"], found["seconds"]) == ({"S": "completed"}, {"N": "1.5"})
        await write(
            driver, {"torchci_classification": {"rule": "pytest failure"}}, 5, named="_classification_version"
        )
        await write(driver, {"status": "completed", "note": None}, 30)
        found = items(aws, f"{prefix}x")["org/a/1"]
        assert found["torchci_classification"] == {"M": {"rule": {"S": "pytest failure"}}}, (
            "nothing erases it"
        )
        assert found["_version"] == {"N": "30"}
        await write(driver, {}, 25, deleted=True)
        assert "org/a/1" in items(aws, f"{prefix}x"), "an older deletion, too, comes too late"
        await write(driver, {}, 40, deleted=True)
        assert items(aws, f"{prefix}x") == {}
    finally:
        await driver.close()


async def test_an_item_that_is_too_large_lacks_what_is_largest(dynamo_sink, aws, prefix):
    driver = driver_of(dynamo_sink)
    try:
        steps = [{"name": "x" * 1000}] * 200
        row = {"id": 7, "body": "b" * 300_000, "steps": steps, "text": "ü" * 150_000, "name": "kept"}
        assert await write(driver, row, 1) == []
        found = items(aws, f"{prefix}x")["org/a/1"]
        assert found["_truncated"] == {"L": [{"S": "body"}, {"S": "steps"}]}
        assert (found["name"], len(found["text"]["S"])) == ({"S": "kept"}, 150_000)
        assert await write(driver, {"name": "kept"}, 2) == []
        assert "_truncated" not in items(aws, f"{prefix}x")["org/a/1"]
        (refused,) = await write(driver, {"blob": b"bytes"}, 3)
        assert refused.reason == "bytes is no value of JSON"
    finally:
        await driver.close()


async def test_without_credentials_the_sink_is_forbidden(dynamo_sink, monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    driver = driver_of(dynamo_sink)
    try:
        with pytest.raises(SinkForbidden, match="credentials"):
            await driver.check_access()
    finally:
        await driver.close()


@pytest.mark.parametrize(
    ("value", "attribute"),
    [
        (None, {"NULL": True}),
        (True, {"BOOL": True}),
        (12, {"N": "12"}),
        (0.1, {"N": "0.1"}),
        (1e-7, {"N": "0.0000001"}),
        (Decimal("1.50"), {"N": "1.50"}),
        (float("nan"), {"S": "nan"}),
        (float("inf"), {"S": "inf"}),
        (10**40 + 1, {"S": str(10**40 + 1)}),
        ("", {"S": ""}),
        ([1, "a"], {"L": [{"N": "1"}, {"S": "a"}]}),
        ({"a": {}}, {"M": {"a": {"M": {}}}}),
    ],
)
def test_values_keep_what_they_say(value, attribute):
    assert as_attribute(value) == attribute


def test_the_size_of_an_item_stays_below_the_limit():
    found = fit_item({f"column {number}": "x" * 50_000 for number in range(20)})
    assert sum(len(name) + size_of(value) for name, value in found.items()) < ITEM_MOST
    assert len(found["_truncated"]["L"]) == 12


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


def rows_of(name, row, layout):
    export = EXPORTS[name]
    copy = load(export.shapes[layout].make)(export)
    found = list(copy.rows(row))
    assert all(one.keys() >= set(copy.key) for one in found)
    return found


def test_a_day_of_disabled_tests_is_a_line_and_a_row_for_each():
    tests = [["test_a (__main__.A)", 7, ["linux"]], ["test_b (__main__.B)", 8, []]]
    row = {"repository_id": 1, "repo": UPSTREAM, "day": DAY, "tests": tests, "made_at": 1_795_341_600_000}
    (one,) = made("disabled_tests_historical", row)
    assert one.key == f"disabled_tests_historical/2026-11-22/{UPSTREAM}"
    first, second = content(one)
    assert (first["day"], first["name"], first["issueNumber"]) == ("2026-11-22", "test_a (__main__.A)", 7)
    assert second["platforms"] == []
    theirs = rows_of("disabled_tests_historical", row, "clickhouse.upstream")
    assert [(one["day"], one["timestamp"]) for one in theirs] == [(DAY, 1_795_341_600)] * 2
    ours = rows_of("disabled_tests_historical", row, "clickhouse.ootbot")
    assert [(one["name"], one["issue"], one["repo"]) for one in ours] == [
        ("test_a (__main__.A)", 7, UPSTREAM), ("test_b (__main__.B)", 8, UPSTREAM),
    ]  # fmt: skip


def waited(*seconds, label="linux.2xlarge"):
    """A day of a runner label on which jobs waited so long."""
    of_day = {"repository_id": 1, "repo": UPSTREAM, "day": DAY}
    queue = histogram.to_bytes(histogram.pack(seconds))
    row = {**of_day, "label": label, "jobs": len(seconds), "queue": queue, "duration": b""}
    return {**of_day, "rows": [row]}


def test_waits_for_runners_are_histograms_of_upstreams_ninety_steps():
    row = waited(30, 60, 61, 3_600, 7_200, 2 * 86_400, 10 * 86_400)
    (one,) = rows_of("queue_times", row, "clickhouse.upstream")
    counts = one["histogram"]
    assert len(counts) == 90
    assert {place: count for place, count in enumerate(counts) if count} == {
        0: 2, 1: 1, 59: 1, 60: 1, 83: 1, 89: 1,
    }  # fmt: skip
    assert (one["total_count"], one["machine_type"], one["time"]) == (7, "linux.2xlarge", DAY * 86_400)
    assert one["max_queue_time"] == 10 * 86_400
    (ours,) = rows_of("queue_times", row, "clickhouse.ootbot")
    assert (ours["waits"], sum(ours["queue_counts"]), ours["day"]) == (7, 7, DAY)
    (stored,) = made("queue_times", row)
    assert stored.key == f"queue_times_historical/2026-11-22/{UPSTREAM}"
    assert content(stored)[0]["count"] == 7
    (nothing,) = rows_of("queue_times", waited(), "clickhouse.upstream")
    assert (nothing["total_count"], nothing["avg_queue_time"], nothing["max_queue_time"]) == (0, 0, 0)


def test_commits_of_a_branch_lie_below_it_by_day():
    line = {
        "repository_id": 1,
        "branch": "release/2.9",
        "day": DAY,
        "place": 0,
        "sha": "a" * 40,
        "verdict": "red",
    }
    row = {"repository_id": 1, "repo": UPSTREAM, "branch": "release/2.9", "day": DAY, "rows": [line]}
    (one,) = made("lines", row)
    assert one.key == f"lines/{UPSTREAM}/release%2F2.9/2026-11-22"
    assert rows_of("lines", row, "clickhouse.ootbot") == [line | {"repo": UPSTREAM}]


def test_an_agent_lies_below_its_organization_and_leaves_only_where_private_rows_do():
    export = EXPORTS["provider_agent"]
    assert (export.internal, export.repositories) == (True, ())
    row = {"organization": "o", "agent_id": "018f/..", "queue": "npu", "state": "connected", "repo": ""}
    (one,) = made("provider_agent", row)
    assert one.key == "provider_agent/o/018f%2F.."
    (item,) = made("provider_agent", row, "dynamodb")
    assert (item.table, item.key, "repo" in item.attributes) == (
        "vllm-buildkite-agent-events",
        "018f/..",
        False,
    )


class Cases:
    """Lines as a file has them, in pieces that end anywhere."""

    def __init__(self, *lines):
        self.content = b"".join(json.dumps(line).encode() + b"\n" for line in lines)

    def pieces(self):
        return (self.content[start : start + 7] for start in range(0, len(self.content), 7))


def line_of(name, status="passed", **more):
    said = {"file": "test_ops.py", "classname": "TestOps", "name": name, "time": 0.25, "status": status}
    return said | {"result": status, "job_id": 5} | more


def test_attempts_have_numbers_that_tests_environments_and_flags_explain():
    job = {
        "repo": UPSTREAM, "job_id": 5, "at": 1_795_341_600_000, "os": "linux", "accelerator": "npu",
        "device_count": 1_000, "flags": {"PYTORCH_TEST_WITH_SLOW": "1"},
    }  # fmt: skip
    cases = Cases(
        line_of("test_add"),
        line_of("test_mul", "failed", failure={"type": "E", "message": "3 != 4" * 100, "text": ""}),
        line_of("test_div", rerun={"message": "boom", "text": ""}),
        line_of("test_sub", "flaky"),
        line_of("test_odd", "no such word"),
    )
    job["cases"] = cases
    runs = list(hub("hub_runs").rows(job))
    tests = {one["id"]: one["case_name"] for one in hub("hub_tests").rows(job)}
    told = [(tests[one["test_id"]], one["rerun_number"], one["outcome"]) for one in runs]
    assert told == [
        ("test_add", 0, "passed"), ("test_mul", 0, "failed"), ("test_div", 0, "failed"), ("test_div", 1, "passed"),
        ("test_sub", 0, "failed"), ("test_sub", 1, "passed"), ("test_odd", 0, "unknown"),
    ]  # fmt: skip
    assert (len(runs[1]["outcome_summary"]), runs[2]["outcome_summary"]) == (256, "boom")
    assert runs[0]["ended_at"] - runs[0]["started_at"] == 250
    (environment,) = hub("hub_environments").rows(job)
    (flags,) = hub("hub_flags").rows(job)
    assert {one["env_id"] for one in runs} == {environment["id"]}
    assert {one["flags_id"] for one in runs} == {flags["id"]}
    assert (environment["os"], environment["accelerator"], environment["device_count"]) == (
        "linux",
        "npu",
        255,
    )
    assert flags["flags"] == job["flags"]
    (elsewhere,) = hub("hub_environments").rows({**job, "repo": "org/other"})
    assert elsewhere["id"] != environment["id"], "so that one repository's can be deleted without another's"


def hub(name):
    export = EXPORTS[name]
    return load(export.shapes["clickhouse.upstream"].make)(export)
