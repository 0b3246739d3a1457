"""Tables of sinks: every mistake is named before anything starts, and no credential is ever shown."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from bot.core.errors import Misconfigured
from bot.core.setting_types import WrongValues
from bot.features import FEATURES
from bot.sinks.driver import mask_credentials
from bot.sinks.queues import export_queues, find_unwritable_exports
from bot.sinks.settings import SinksSettings, parse_sinks
from tests.harness import replace

GOOD = {"kind": "objects", "url": "s3://bucket/x", "what": ["deliveries"]}


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({}, "sink x: kind is none of objects"),
        (GOOD | {"kind": "kafka"}, "sink x: kind is none of"),
        (GOOD | {"what": []}, "sink x: what is empty"),
        ({"kind": "objects", "url": "s3://b/x"}, "sink x: Object missing required field `what`"),
        (GOOD | {"repos": []}, "sink x: repos is empty"),
        (GOOD | {"since": "soon"}, "sink x: since is neither now nor a date"),
        (GOOD | {"max_lag": "10"}, "sink x: max_lag: `10` is not a duration"),
        (GOOD | {"batch_rows": 0}, "sink x: batch_rows is not between 1 and"),
        (GOOD | {"batch_seconds": -1}, "sink x: batch_seconds is not between 0 and 3600"),
        (GOOD | {"private": "yes"}, "sink x: Expected `bool`, got `str`"),
        (GOOD | {"colour": "red"}, "sink x: Object contains unknown field `colour`"),
        (GOOD | {"layout": "round"}, "sink x: Invalid enum value"),
        (GOOD | {"url": "ftp://b/x"}, "sink x: url is none of s3://bucket/prefix"),
        (GOOD | {"url": "s3://"}, "sink x: url is none of s3://bucket/prefix"),
        (GOOD | {"url": "s3://key:hunter2@b/x"}, "sink x: url must not hold credentials"),
        (GOOD | {"url": "https://b/x?sig=hunter2"}, "sink x: url is none of"),
    ],
)
def test_a_mistake_is_named(table, words):
    with pytest.raises(WrongValues) as told:
        parse_sinks(json.dumps({"x": table}))
    (problem,) = told.value.problems
    assert problem.startswith(words)
    assert "hunter2" not in problem


def test_all_mistakes_of_all_sinks_are_named_at_once():
    tables = {"Bad Name": GOOD, "a": GOOD | {"what": [], "since": "x"}, "b": GOOD | {"url": "", "z": 1}}
    with pytest.raises(WrongValues) as told:
        parse_sinks(json.dumps(tables))
    assert [problem.partition(":")[0] for problem in told.value.problems] == [
        "sink 'Bad Name'",
        "sink a",
        "sink a",
        "sink b",
    ]


@pytest.mark.parametrize("text", ["", "[]", "{", '{"a": 1}', "archive"])
def test_what_is_no_table_is_refused_in_words(text):
    with pytest.raises(ValueError, match=r"write a table for each sink: \[sinks.archive\]"):
        parse_sinks(text)


def test_what_there_is_none_of_is_named_with_what_there_is(settings):
    chosen = parse_sinks(json.dumps({"x": GOOD | {"what": ["deliveries", "records", "everything"]}}))
    with_sinks = replace(settings, of_features={SinksSettings: SinksSettings(sinks=chosen)})
    assert find_unwritable_exports(with_sinks, FEATURES) == [
        "sink x: what: 'records' has no shape in layout raw; there are deliveries",
        "sink x: what: 'everything' is not among what is stored; there are deliveries",
    ]
    with pytest.raises(Misconfigured):
        export_queues(with_sinks, FEATURES)


def test_a_group_stands_for_its_exports(settings):
    chosen = parse_sinks(json.dumps({"x": GOOD | {"layout": "upstream", "what": ["tests", "workflow_job"]}}))
    with_sinks = replace(settings, of_features={SinksSettings: SinksSettings(sinks=chosen)})
    assert {queue.task_key for queue in export_queues(with_sinks, FEATURES)} == {
        "x/workflow_job", "x/test_run_summary", "x/failed_test_runs", "x/test_run", "x/rerun_disabled_tests",
        "x/test_states", "x/test_losses",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("missing", "sinks", "words"),
    [
        (True, {"ch": GOOD}, "sink ch needs obstore: pip install 'ootbot[s3]'"),
        (False, {"ch": GOOD | {"what": ["nothing"]}}, "sink ch: what: 'nothing' is not among what is stored"),
    ],
)
def test_the_bot_does_not_start_with_mistakes(tmp_path, settings, missing, sinks, words):
    hide = "sys.modules['obstore'] = None; " if missing else ""
    code = f"import sys; {hide}from bot.cli import main; main(['serve'])"
    (tmp_path / "key.pem").write_text(settings.private_key)
    environ = {
        "OOTBOT_SINKS": json.dumps(sinks), "OOTBOT_APP_ID": "1", "OOTBOT_WEBHOOK_SECRET": "x" * 20,
        "OOTBOT_PRIVATE_KEY_PATH": str(tmp_path / "key.pem"), "OOTBOT_UPSTREAM_REPO": "a/b",
        "OOTBOT_ALLOWLIST": settings.allowlist, "OOTBOT_DATA_DIR": str(tmp_path / "data"), "PYTHONPATH": ".",
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=False
    )
    assert (done.returncode, words in done.stderr) == (2, True), done.stderr


def test_tables_of_toml_are_read(tmp_path):
    from bot.core.setting_types import as_text
    from bot.core.settings_loading import read_file

    file = tmp_path / "ootbot.toml"
    file.write_text(
        '[sinks.archive]\nkind = "objects"\nurl = "file:///x"\nwhat = ["deliveries"]\nsince = "2026-01-31"\n'
    )
    (sink,) = parse_sinks(as_text(read_file(file)["sinks"]))
    assert (sink.name, sink.address, sink.layout, sink.since) == (
        "archive",
        "file:///x",
        "raw",
        1_769_817_600_000,
    )


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("GET https://user:hunter2@host/x failed", "GET https://***@host/x failed"),
        ("https://a.blob/x?sv=2020&sig=hunter2&se=9", "https://a.blob/x?sv=***&sig=***&se=***"),
        ("x?X-Amz-Signature=hunter2 and more", "x?X-Amz-Signature=*** and more"),
        ("a line\n\nDebug source: hunter2", "a line"),
    ],
)
def test_errors_are_shown_without_credentials(text, shown):
    assert mask_credentials(text) == shown
