"""Tables of ClickHouse as they are made, what errors of stores mean for a sink; and every table has an export, or a reason."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from aiohttp import web
from clickhouse_connect.driver.exceptions import DatabaseError, OperationalError

import bot.db.installation
from bot.core.feature import import_tables, load, load_each
from bot.db.exports import Export, StoredItem
from bot.db.rows import metadata
from bot.features import FEATURES
from bot.ingest.tables import records
from bot.sinks.clickhouse import ClickhouseClient, as_sink_error
from bot.sinks.clickhouse_tables import (
    convert_column,
    converter_of,
    ddl_of,
    family_of,
    find_schema_problem,
    parse_type,
)
from bot.sinks.driver import Batch, BatchRefused, Outgoing, SinkAway, SinkForbidden, Stopped
from bot.sinks.dynamodb import DynamoDriver
from bot.sinks.queues import export_queues
from bot.sinks.sending import send_all
from bot.sinks.settings import ClickhouseOptions, ClickhouseServer, DynamoOptions, find_clickhouse_problem

OPTIONS = ClickhouseOptions(url="https://ci@ch.example:8443")
EXPORTS = {export.name: export for found in load_each(FEATURES, "exports") for export in found}
AROUND = "Received ClickHouse exception, code: {}, server response: Code: {}. DB::Exception: {} (for url https://ci@h)"
DOCUMENT = (Path(__file__).parents[2] / "docs" / "sinks.md").read_text()
LISTED = [export for found in load_each(FEATURES, "exports") for export in found]
# they leave with the rows of another table
PARTS = {
    "benchmark_point": "benchmark_records", "benchmark_series": "benchmark_records", "bisect_step": "bisects",
    "ci_cache_stats": "sccache_stats", "ci_metric": "ossci_uploaded_metrics", "repository_name": "repository",
    "test": "test_run", "test_class": "test_run", "test_env": "test_jobs", "test_failure": "failed_test_runs",
    "test_rerun": "rerun_disabled_tests", "test_summary": "test_run_summary",
}  # fmt: skip
# what rows that leave add up to, or are made of: a column store counts by itself
MADE_OF_OTHERS = {
    "benchmark_trend", "branch_commit", "ci_broken", "ci_cache_day", "ci_cache_trend", "ci_cell", "ci_commit", "ci_day",
    "ci_metric_day", "ci_metric_trend", "ci_pull_closes", "ci_runner_day", "ci_signature", "ci_signature_day",
    "ci_unstable", "folded_commit", "oot_compared", "oot_day", "oot_failure_kind", "oot_job_name", "oot_level", "oot_rate",
    "oot_run", "oot_tree", "oot_changed_files", "oot_merge_base", "oot_merge_group", "test_day", "test_time", "trunk_branch",
    "utilization_day", "word", "word_title",
}  # fmt: skip
# what the bot remembers of its own work: what is to be done, was asked for, was said, who may do what
OWN_WORK = {
    "admin_sign_out", "allowlist_version", "bisect_comment", "branch_rule", "ci_budget", "ci_disabling_comment",
    "ci_fetch", "ci_listing", "ci_reclassified", "ci_ruleset", "ci_storage_day", "ci_upload",
    "missed_delivery", "notice", "notice_sending", "notice_told", "oot_approval", "oot_check", "oot_command",
    "oot_budget", "oot_comment", "oot_comment_refusal", "oot_dispatch", "oot_ignore", "oot_key", "oot_mention", "oot_ping",
    "oot_rerun", "pinned_repository", "running_listing", "sink_mark", "sink_refused", "sink_repository", "sink_state",
    "schema_support", "secret", "sweep", "task", "test_part", "test_quota", "test_rerun_job", "test_time_source",
}  # fmt: skip


def table_of(name, layout="clickhouse.ootbot"):
    export = EXPORTS[name]
    return load(export.shapes[layout].make)(export).table


def test_our_tables_keep_the_newest_version_of_a_row():
    database, table, view = ddl_of(table_of("trunk_events"), OPTIONS)
    assert database == "CREATE DATABASE IF NOT EXISTS `ootbot`"
    assert (
        table
        == """CREATE TABLE IF NOT EXISTS `ootbot`.`trunk_event` (
  `repo` LowCardinality(String),
  `repository_id` Int64,
  `branch` LowCardinality(String),
  `name` String,
  `first_bad` String,
  `state_after` String,
  `state_before` String,
  `last_good` Nullable(String),
  `signature` Nullable(String),
  `at` Nullable(DateTime64(3, 'UTC')),
  `_version` UInt64,
  `_deleted` UInt8
)
ENGINE = ReplacingMergeTree(_version, _deleted)
ORDER BY (`repository_id`, `branch`, `name`, `first_bad`, `state_after`)"""
    )
    assert view == (
        "CREATE VIEW IF NOT EXISTS `ootbot`.`v_trunk_event` AS"
        " SELECT * EXCEPT (_version, _deleted) FROM `ootbot`.`trunk_event` FINAL"
    )


def test_records_are_split_by_month_and_grow_old():
    _, table, _ = ddl_of(table_of("workflow_job"), OPTIONS)
    assert table.endswith(
        "PARTITION BY toYYYYMM(`received_at`)\nORDER BY (`repository_id`, `id`)\n"
        "TTL toDateTime(`received_at`) + INTERVAL 400 DAY"
    )
    for_ever = ClickhouseOptions(url=OPTIONS.url, keep_days=0)
    assert "TTL" not in "".join(ddl_of(table_of("workflow_job"), for_ever))


def test_what_the_server_computes_and_looks_up_is_declared_beside_the_columns():
    table = table_of("workflow_job", "clickhouse.upstream")
    _, made, *views = ddl_of(table, OPTIONS)
    column = "head_sha"
    selected = f"SELECT `id`, `{column}` FROM `default`.`workflow_job`"
    assert "`conclusion_kg` String ALIAS conclusion" in made
    assert "`torchci_classification` Tuple(" in made
    assert views[:2] == [
        "CREATE DATABASE IF NOT EXISTS `materialized_views`",
        f"CREATE VIEW IF NOT EXISTS `materialized_views`.`workflow_job_by_{column}` AS {selected}",
    ]
    assert not table.computed.keys() & table.all_columns.keys()
    there = find_schema_problem(table, dict(table.all_columns), OPTIONS)
    assert there == "", "what is computed is no column that a table has to have"


def test_upstreams_tables_have_upstreams_names_and_keys():
    table = table_of("oot_workflow_job", "clickhouse.upstream")
    assert (table.name, table.order) == (
        "default.crcr_workflow_job", ("downstream_repo", "delivery_id", "dynamoKey"),
    )  # fmt: skip
    names = {
        name: table_of(name, "clickhouse.upstream").name
        for name, export in EXPORTS.items()
        if "clickhouse.upstream" in export.shapes
    }
    assert names == {
        "issue": "default.issues", "issue_comment": "default.issue_comment", "pull_request": "default.pull_request",
        "pull_review": "default.pull_request_review", "pull_review_comment": "default.pull_request_review_comment",
        "push": "default.push", "workflow_run": "default.workflow_run", "workflow_job": "default.workflow_job",
        "oot_workflow_job": "default.crcr_workflow_job", "test_run_summary": "default.test_run_summary",
        "failed_test_runs": "default.failed_test_runs", "test_run": "default.test_run_s3",
        "rerun_disabled_tests": "default.rerun_disabled_tests",
        "util_metadata": "misc.oss_ci_utilization_metadata", "util_timeseries": "misc.oss_ci_time_series",
        "ossci_uploaded_metrics": "misc.ossci_uploaded_metrics",
        "disabled_tests_historical": "misc.disabled_tests_historical",
        "queue_times": "misc.oss_ci_queue_time_histogram", "all_test_runs": "tests.all_test_runs",
        "hub_runs": "tests.runs", "hub_tests": "tests.tests", "hub_environments": "tests.environments",
        "hub_flags": "tests.flags",
    }  # fmt: skip


@pytest.mark.parametrize("name", sorted(EXPORTS))
def test_each_table_has_the_columns_of_its_key(name):
    for layout, shape in EXPORTS[name].shapes.items():
        if layout.startswith("clickhouse"):
            copy = load(shape.make)(EXPORTS[name])
            assert {*copy.key, *copy.table.order} <= copy.table.columns.keys()
            assert not any(
                "Nullable" in copy.table.columns[column] for column in (*copy.key, *copy.table.order)
            )
            for kind in copy.table.columns.values():
                converter_of(kind)(None)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({}, ""),
        ({"further": "String"}, ""),
        ({"state_after": "LowCardinality(String)"}, ""),
        (None, "there is no ootbot.trunk_event: `ootbot sink ddl` prints what makes it"),
        ({"branch": None}, "ootbot.trunk_event has no column branch"),
        ({"_version": None}, "ootbot.trunk_event has no column _version"),
        ({"repository_id": "String"}, "ootbot.trunk_event.repository_id is String, not Int64"),
        ({"last_good": "String"}, "ootbot.trunk_event.last_good is String, not Nullable(String)"),
        (
            {"at": "Nullable(DateTime64(9))"},
            "ootbot.trunk_event.at is Nullable(DateTime64(9)), not Nullable(DateTime64(3, 'UTC'))",
        ),
    ],
)
def test_a_table_that_will_not_do_is_named_with_its_column(changes, problem):
    table = table_of("trunk_events")
    found = {} if changes is None else {**table.all_columns, **changes}
    found = {name: kind for name, kind in found.items() if kind}
    assert find_schema_problem(table, found, OPTIONS) == problem


@pytest.mark.parametrize(
    ("kind", "value", "made"),
    [
        ("String", None, ""),
        ("String", {"a": [1]}, '{"a":[1]}'),
        ("Nullable(String)", None, None),
        ("LowCardinality(Nullable(String))", "x", "x"),
        ("UInt64", "12", 12),
        ("Int64", None, 0),
        ("Float32", None, 0.0),
        ("Bool", None, False),
        ("DateTime64(9)", None, 0),
        ("DateTime64(9)", "2026-11-22T10:00:00Z", 1795341600 * 10**9),
        ("DateTime64(3, 'UTC')", 1795341600123, 1795341600123),
        ("DateTime64(0, 'UTC')", 1795341600, 1795341600),
        ("DateTime", datetime(2026, 11, 22, 10, tzinfo=UTC), 1795341600),
        ("Date", 20779, 20779),
        ("Date", "2026-11-22", 20779),
        ("Date", None, 0),
        ("Array(String)", None, []),
        ("Array(Tuple(name String, number Int64))", [{"name": "a"}], [{"name": "a", "number": 0}]),
        ("Tuple(id String, author Tuple(email String))", None, {"id": "", "author": {"email": ""}}),
        ("Map(String, String)", {"a": 1}, {"a": "1"}),
    ],
)
def test_values_of_json_become_values_of_a_column(kind, value, made):
    assert converter_of(kind)(value) == made


@pytest.mark.parametrize(
    ("kind", "values", "made"),
    [
        ("String", ["a", "b"], ["a", "b"]),
        ("String", ["a", 1, None], ["a", "1", ""]),
        ("Nullable(String)", ["a", None], ["a", None]),
        ("LowCardinality(Nullable(String))", ["a", None, 2], ["a", None, "2"]),
        ("Int64", [1, True, None], [1, 1, 0]),
        ("Nullable(DateTime64(3, 'UTC'))", [1795341600123, None], [1795341600123, None]),
        ("DateTime64(3, 'UTC')", [1795341600123, None], [1795341600123, 0]),
        ("DateTime64(3, 'UTC')", [1795341600123, 1795341600], [1795341600123, 1795341600000]),
        ("DateTime64(9)", [1795341600123], [1795341600123 * 10**6]),
    ],
)
def test_a_column_is_converted_where_one_of_its_values_has_to_be(kind, values, made):
    assert convert_column(kind, values) == made


@pytest.mark.parametrize(
    ("kind", "value"),
    [("Int64", "x"), ("Array(String)", "text"), ("Tuple(a String)", [1]), ("DateTime64(9)", "yesterday")],
)
def test_a_value_that_fits_into_no_column_is_refused(kind, value):
    with pytest.raises((ValueError, TypeError)):
        converter_of(kind)(value)


def test_types_are_read_with_their_arguments():
    kind = "Array(Tuple(`a b` DateTime64(9, 'Asia/X,Y'), n Tuple(m Map(String, Int8))))"
    assert parse_type(kind).arguments == (kind[6:-1],)
    assert list(parse_type(kind[6:-1]).elements.items()) == [
        ("a b", "DateTime64(9, 'Asia/X,Y')"), ("n", "Tuple(m Map(String, Int8))"),
    ]  # fmt: skip
    assert family_of("Array(LowCardinality(Nullable(String)))") == family_of("Array(FixedString(40))")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"url": "https://ci@h:8443"}, ""),
        ({"url": "http://h"}, ""),
        ({"url": "tcp://h:9000"}, "url is no address such as https://user@host:8443"),
        ({"url": "https://u:secret@h"}, "url must not hold a password: name the variable that holds it, as password_env"),
        ({"url": "https://h:x"}, "url is no address such as https://user@host:8443"),
        ({"url": "http://h", "database": "a b"}, "database is no name of letters, digits and _"),
        ({"url": "http://h", "keep_days": -1}, "keep_days is not between 0 and 36500"),
        ({"url": "http://h", "password_env": "NO_SUCH"}, "password_env: there is no NO_SUCH in the environment"),
    ],
)  # fmt: skip
def test_mistakes_in_the_options_are_named(options, problem):
    assert find_clickhouse_problem(ClickhouseOptions(**options)) == problem


@pytest.mark.parametrize(
    ("code", "words", "kind"),
    [
        (516, "ci: Authentication failed: password is incorrect. (AUTHENTICATION_FAILED)", SinkForbidden),
        (497, "ci: Not enough privileges. (ACCESS_DENIED)", SinkForbidden),
        (60, "Table default.push does not exist. (UNKNOWN_TABLE)", Stopped),
        (16, "No such column backfill in table default.workflow_job. (NO_SUCH_COLUMN_IN_TABLE)", Stopped),
        (53, "Type mismatch in IN or VALUES section. (TYPE_MISMATCH)", BatchRefused),
        (241, "Memory limit (total) exceeded. (MEMORY_LIMIT_EXCEEDED)", SinkAway),
        (252, "Too many parts (300). (TOO_MANY_PARTS)", SinkAway),
    ],
)
def test_an_answer_of_clickhouse(code, words, kind):
    found = as_sink_error(DatabaseError(AROUND.format(code, code, words), code=code))
    assert type(found) is kind
    assert str(found).endswith(words)
    assert "ci@h" not in str(found)


def test_no_answer_of_clickhouse_at_all():
    assert type(as_sink_error(OperationalError("Network Error: Server disconnected"))) is SinkAway


async def test_a_server_that_is_not_there_is_away():
    client = ClickhouseClient(
        ClickhouseServer(host="127.0.0.1", port=1, secure=False, username="ci", password="secret")
    )
    with pytest.raises(SinkAway) as found:
        await client.read("SELECT 1")
    assert "secret" not in str(found.value)


@pytest.fixture
async def throttled(monkeypatch):
    """A DynamoDB that takes one request in three; yields the driver and what it was asked."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a-key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a secret")
    asked = []

    async def handle(request):
        asked.append(await request.json())
        if len(asked) % 3:
            kind = "com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException"
            return web.Response(status=400, text=json.dumps({"__type": kind, "message": "slower"}))
        return web.Response(text="{}", content_type="application/x-amz-json-1.0")

    app = web.Application()
    app.router.add_post("/", handle)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    address = f"http://127.0.0.1:{runner.addresses[0][1]}"
    driver = DynamoDriver(DynamoOptions(region="us-east-1", endpoint=address))
    yield driver, asked
    await driver.close()
    await runner.cleanup()


@pytest.mark.nightly
async def test_throttling_is_waited_for(throttled):
    driver, asked = throttled
    export = Export(name="x", table=records["workflow_job"], day="received_at")

    def make(_export, row):
        return [StoredItem(table="x", key=row["key"], attributes={})]

    items = [Outgoing(key=(one,), row={"key": f"org/a/{one}"}, version=1) for one in range(2)]
    assert await driver.send(Batch(export=export, make=make, items=items)) == []
    assert {one["Key"]["dynamoKey"]["S"] for one in asked} == {"org/a/0", "org/a/1"}
    assert len(asked) > len(items)


class Strict:
    """A driver as one of a database may be: one bad row, and none of the batch is taken."""

    def __init__(self, *bad, away_after=None):
        self.bad, self.taken, self.calls, self.away_after = set(bad), [], 0, away_after

    async def send(self, batch):
        self.calls += 1
        if self.calls == self.away_after:
            raise SinkAway("it is away")
        keys = [item.key for item in batch.items]
        if self.bad & set(keys):
            raise BatchRefused("some value is too large")
        self.taken += keys
        return []


@pytest.fixture
def queue(with_sinks):
    return next(one for one in export_queues(with_sinks, FEATURES) if one.what == "workflow_job")


def items(count):
    return [Outgoing(key=(1, number), row={}) for number in range(count)]


@pytest.mark.parametrize("bad", [(), (0,), (999,), (3, 4), (0, 500, 999)])
async def test_all_others_are_taken_once(queue, bad):
    driver = Strict(*((1, number) for number in bad))
    refused = await send_all(driver, queue, items(1000))
    assert sorted(one.key for one in refused) == [(1, number) for number in bad]
    assert sorted(driver.taken) == [(1, number) for number in range(1000) if number not in bad]
    assert driver.calls <= 1 + 2 * 10 * len(bad)
    assert {one.reason for one in refused} <= {"some value is too large"}


async def test_a_sink_that_goes_away_meanwhile_ends_it(queue):
    with pytest.raises(SinkAway):
        await send_all(Strict((1, 3), away_after=4), queue, items(100))


def tables():
    assert bot.db.installation, "importing it adds its table"
    import_tables(FEATURES)
    return set(metadata.tables)


def test_every_table_leaves_or_has_a_reason_not_to():
    exported = {export.table.name for export in LISTED}
    assert set(PARTS.values()) <= {export.name for export in LISTED}
    reasons = PARTS.keys() | MADE_OF_OTHERS | OWN_WORK
    assert tables() - exported - reasons == set(), "say how it leaves, or why it does not"
    assert reasons - tables() == set(), "there is no such table any more"


def test_every_export_is_in_the_table_of_the_documentation():
    records = {export.name for export in LISTED if export.group == "records"}
    named = {export.name for export in LISTED} - records
    assert [name for name in sorted(named) if f"`{name}`" not in DOCUMENT] == []
