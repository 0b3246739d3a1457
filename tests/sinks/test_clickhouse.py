"""Tables of ClickHouse, by its own engine: current rows, what is gone, what is wrong with a table or the server."""

from __future__ import annotations

import secrets

import pytest

from bot.demo.github.serializers import repository
from tests.harness import UPSTREAM
from tests.serving import SQLITE

pytest.importorskip("chdb")

from tests.sinks import clickhouse_gateway
from tests.sinks.clickhouse_tables import Tables, sink_of
from tests.sinks.test_sink_command import sink  # noqa: F401 - a fixture

pytestmark = [SQLITE, pytest.mark.nightly]
HOUR = 3_600_000  # milliseconds


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clickhouse")
    with clickhouse_gateway.serving(folder) as port:
        yield folder, port


@pytest.fixture
def database():
    return f"ci_{secrets.token_hex(4)}"


@pytest.fixture
async def ch(server):
    found = Tables(*server)
    yield found
    found.fail("")
    await found.close()


@pytest.fixture
def tables(request, server, database):
    options = {"what": ["records", "deliveries", "oot_workflow_job"]} | getattr(request, "param", {})
    return {"ch": sink_of(server[1], database, **options)}


async def ran(bot, github, name="build"):
    run = await github.start_run(UPSTREAM, event="push")
    job = await github.start_job(run, name)
    await bot.settle(horizon=3)
    await github.finish_job(job, "failure")
    await bot.settle(horizon=10)
    return job


async def test_a_row_is_there_once_as_it_is_now(bot, github, ch, database, sink):  # noqa: F811
    job = await ran(bot, github)
    (row,) = await ch.rows(f"SELECT * FROM {database}.v_workflow_job")
    assert (row["id"], row["status"], row["conclusion"], row["repo"]) == (
        job.id,
        "completed",
        "failure",
        UPSTREAM,
    )
    (stored,) = await bot.rows("workflow_job")
    assert round(row["completed_at"].timestamp() * 1000) == stored["completed_at"]
    (counted,) = await ch.rows(f"SELECT count() AS n FROM {database}.v_delivery")
    assert counted["n"] == len(await bot.rows("delivery"))
    await bot.settle(horizon=100)
    code, out, err = await sink("check", "ch")
    assert code == 0, out + err
    assert "workflow_job: 1 rows, 0 missing; " in out
    await ch.change(f"TRUNCATE TABLE {database}.workflow_job")
    code, out, _ = await sink("check", "ch", "--what", "workflow_job")
    assert code == 1, out
    assert "1 of 1 missing" in out


async def test_rows_of_a_repository_that_turns_private_are_deleted(bot, github, ch, database):
    await ran(bot, github)
    github.state.repo(UPSTREAM).private = True
    about = repository.repository(github.state, github.state.repo(UPSTREAM)) | {
        "updated_at": "2030-01-01T00:00:00Z"
    }
    await bot.send("repository", {"action": "privatized", "repository": about})
    await bot.settle(horizon=200)
    assert await ch.rows(f"SELECT id FROM {database}.v_workflow_job") == []
    assert await ch.rows(f"SELECT id FROM {database}.v_workflow_run") == []
    assert await ch.rows(f"SELECT guid FROM {database}.v_delivery WHERE repo = '{UPSTREAM}'") == []


async def state_of(bot, what="workflow_job"):
    (row,) = [row for row in await bot.rows("sink_state") if row["what"] == what]
    return row


@pytest.mark.parametrize("tables", [{"manage_schema": False, "what": ["records"]}], indirect=True)
async def test_a_missing_table_and_a_wrong_column_stop_their_export_alone(bot, github, ch, database, sink):  # noqa: F811
    _, ddl, _ = await sink("ddl", "ch")
    statements = [one for one in ddl.split(";\n") if one.strip()]
    others = [one for one in statements if "workflow_job" not in one]
    await ch.change(*others)
    job = await ran(bot, github)
    assert (
        f"schema: there is no {database}.workflow_job: `ootbot sink ddl`" in (await state_of(bot))["stopped"]
    )
    assert len(await ch.rows(f"SELECT id FROM {database}.v_workflow_run")) == 1, "other exports go on"
    await ch.change(*(one for one in statements if "workflow_job" in one))
    await ch.change(
        f"DROP VIEW {database}.v_workflow_job", f"ALTER TABLE {database}.workflow_job DROP COLUMN runner_name"
    )
    await sink("resume", "ch")
    await bot.settle(horizon=10)
    assert (await state_of(bot))["stopped"] == f"schema: {database}.workflow_job has no column runner_name"
    await ch.change(f"ALTER TABLE {database}.workflow_job ADD COLUMN runner_name Nullable(UInt64)")
    await sink("resume", "ch")
    await bot.settle(horizon=10)
    assert (
        "workflow_job.runner_name is Nullable(UInt64), not Nullable(String)"
        in (await state_of(bot))["stopped"]
    )
    await ch.change(f"ALTER TABLE {database}.workflow_job MODIFY COLUMN runner_name Nullable(String)")
    await sink("resume", "ch")
    await bot.settle(horizon=10)
    assert (await state_of(bot))["stopped"] is None
    assert [row["id"] for row in await ch.rows(f"SELECT id FROM {database}.workflow_job FINAL")] == [job.id]


AUTH = (
    "403 Code: 516. DB::Exception: ci: Authentication failed: password is incorrect. (AUTHENTICATION_FAILED)"
)
BUSY = "503 Code: 241. DB::Exception: Memory limit (total) exceeded. (MEMORY_LIMIT_EXCEEDED)"


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (AUTH, "403 ci: Authentication failed: password is incorrect. (AUTHENTICATION_FAILED)"),
        (BUSY, "Memory limit (total) exceeded. (MEMORY_LIMIT_EXCEEDED)"),
        ("502 <html>Bad Gateway</html>", "Bad Gateway"),
    ],
)
async def test_a_server_that_refuses_gets_everything_once_it_does_not(
    bot, github, ch, database, fault, words
):
    ch.fail(fault)
    job = await ran(bot, github)
    assert words in (await state_of(bot))["error"]
    ch.fail("")
    await bot.settle(horizon=700)
    assert [row["id"] for row in await ch.rows(f"SELECT id FROM {database}.v_workflow_job")] == [job.id]
    assert (await state_of(bot))["error"] is None


async def test_a_connection_cut_after_the_insert_doubles_nothing(bot, github, ch, database):
    await ran(bot, github)
    ch.fail("cut")
    job = await ran(bot, github, "test")
    assert "Server disconnected" in (await state_of(bot))["error"]
    assert await bot.rows("sink_mark")
    ch.fail("")
    await bot.settle(horizon=700)
    rows = await ch.rows(f"SELECT id, conclusion FROM {database}.v_workflow_job WHERE name = 'test'")
    assert [(row["id"], row["conclusion"]) for row in rows] == [(job.id, "failure")]
    assert await bot.rows("sink_mark") == []


async def test_columns_of_others_in_our_tables_do_no_harm(bot, github, ch, database):
    await ran(bot, github)
    await ch.change(f"ALTER TABLE {database}.workflow_job ADD COLUMN note String DEFAULT 'theirs'")
    job = await ran(bot, github, "test")
    rows = await ch.rows(
        f"SELECT id, conclusion, note FROM {database}.workflow_job FINAL WHERE name = 'test'"
    )
    assert [tuple(row.values()) for row in rows] == [(job.id, "failure", "theirs")]


async def test_what_a_clock_that_was_ahead_sent_is_replaced_all_the_same(bot, github, ch, database):
    run = await github.start_run(UPSTREAM, event="push")
    bot.clock.at += HOUR
    job = await github.start_job(run, "build")
    await bot.settle(horizon=10)
    bot.clock.at -= HOUR
    await github.finish_job(job, "failure")
    await bot.settle(horizon=10)
    rows = await ch.rows(f"SELECT id, conclusion FROM {database}.v_workflow_job")
    assert [tuple(row.values()) for row in rows] == [(job.id, "failure")]
