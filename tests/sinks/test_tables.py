"""Tables of ClickHouse as they are made and looked at: types, statements, what is wrong with a table."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from bot.core.feature import load, load_each
from bot.features import FEATURES
from bot.sinks.clickhouse_tables import (
    convert_column,
    converter_of,
    ddl_of,
    family_of,
    find_schema_problem,
    parse_type,
)
from bot.sinks.settings import ClickhouseOptions, find_clickhouse_problem

OPTIONS = ClickhouseOptions(url="https://ci@ch.example:8443")
EXPORTS = {export.name: export for found in load_each(FEATURES, "exports") for export in found}


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
