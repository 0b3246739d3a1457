"""An empty database that is filled from the archive ends in the same records; damage is named."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from bot.ingest.tables import TYPES
from tests.command import ootbot
from tests.harness import L4, UPSTREAM, replace
from tests.serving import SQLITE
from tests.sinks.test_archive import delivered

PLACE = "--from-objects"
DOCUMENT = (Path(__file__).parents[2] / "docs" / "sinks.md").read_text()
OF_GRID = {"branch_commit", "ci_cell", "ci_column", "trunk_branch"}  # rebuilt with the records
# by the tasks that replaying leaves, once a server runs on the database
MADE_LATER = {
    "ci_broken",
    "ci_commit",
    "ci_day",
    "ci_line",
    "ci_runner_day",
    "contribution_pull",
    "trunk_event",
}
# what backends reported and what was dispatched to them, the allowlist, what only GitHub could be asked for
IN_NO_DELIVERY = {
    "allowlist_version", "oot_compared", "oot_day", "oot_dispatch", "oot_level", "oot_mention", "oot_merge_base",
    "oot_rate", "oot_workflow_job", "pinned_repository", "repository",
}  # fmt: skip
OWN_WORK = {  # of the bot that is gone
    "ci_budget", "ci_fetch", "ci_listing", "delivery", "oot_budget", "oot_check", "oot_comment", "secret", "sink_mark",
    "sink_repository", "sink_state", "sweep", "task",
}  # fmt: skip


class Elsewhere:
    """A bot's settings with another data folder, for commands."""

    def __init__(self, bot, folder):
        self.context = bot.context
        folder.mkdir()
        self.context = replace(bot.context, settings=replace(bot.context.settings, data_dir=folder))


def records_in(folder):
    connection = sqlite3.connect(folder / "ootbot.db")
    connection.row_factory = sqlite3.Row
    names = [*TYPES, "repository_name", "ci_cell"]
    found = {name: [dict(row) for row in connection.execute(f"SELECT * FROM {name}")] for name in names}
    # GitHub was also asked for repositories: what it answered is no delivery, and may be newer in a detail
    named = ("repository_id", "repo", "private", "received_at")
    found["repository"] = [{name: row[name] for name in named} for row in found["repository"]]
    return {name: sorted(map(str, rows)) for name, rows in found.items()}


@SQLITE
async def test_an_empty_database_is_filled_from_the_archive(bot, github, folder, tmp_path):
    pull = await github.open_pull(UPSTREAM)
    await github.label(pull, "ciflow/oot/npu")
    await delivered(bot, github)
    await github.close(pull)
    await bot.settle(horizon=15)
    there = Elsewhere(bot, tmp_path / "empty")
    code, out, err = await ootbot(there, "replay", PLACE, f"file://{folder}/archive")
    assert (code, out) == (
        0,
        f"replayed {len(await bot.rows('delivery'))} deliveries of file://{folder}/archive\n",
    ), err
    assert records_in(tmp_path / "empty") == records_in(bot.context.settings.data_dir)


@SQLITE
async def test_what_is_damaged_is_named_and_the_rest_is_replayed(bot, github, folder, tmp_path):
    await delivered(bot, github)
    first, second, third, *_ = sorted((folder / "archive").rglob("*.json.gz"))
    first.unlink()
    second.write_bytes(third.read_bytes())
    third.write_bytes(b"nothing")
    there = Elsewhere(bot, tmp_path / "empty")
    code, out, err = await ootbot(there, "replay", PLACE, f"file://{folder}/archive")
    assert code == 1
    for path, words in ((first, "is missing"), (second, "differs from what was archived"),
                        (third, "is not a gzip file")):  # fmt: skip
        assert f"{path.relative_to(folder / 'archive')} {words}" in err
    assert f"replayed {len(await bot.rows('delivery')) - 3} " in out


@SQLITE
async def test_where_no_archive_is_nothing_is_replayed(bot, tmp_path):
    code, _, err = await ootbot(bot, "replay", PLACE, f"file://{tmp_path}/nothing")
    assert (code, "holds no archive" in err) == (1, True)
    code, _, err = await ootbot(bot, "replay", PLACE, "https://example.com/x")
    assert (code, "url is none of s3://" in err) == (2, True)
    code, _, err = await ootbot(bot, "replay", PLACE, "s3://bucket/x", "--all")
    assert (code, "stands alone" in err) == (2, True)


def everything_in(folder):
    """The rows of all tables, as texts."""
    connection = sqlite3.connect(folder / "ootbot.db")
    names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    return {
        name: sorted(map(repr, connection.execute(f'SELECT * FROM "{name}"')))
        for name in names
        if not name.startswith(("sqlite_", "alembic"))
    }


@SQLITE
@pytest.mark.nightly
async def test_what_else_is_rebuilt_and_what_is_not_is_documented(bot, github, folder, tmp_path):
    pull = await github.open_pull(UPSTREAM)
    await github.push(UPSTREAM, "main")
    await delivered(bot, github)
    await bot.settle()
    await bot.report(bot.dispatch(L4), status="in_progress")
    await bot.report(bot.dispatch(L4), conclusion="failure")
    await github.comment(pull, "Thanks", by="alice")
    run = await github.start_run(UPSTREAM, event="push")
    await github.finish_job(await github.start_job(run, "build"), "failure", log="##[error]broken\n")
    await github.finish_run(run, "failure")
    await bot.settle(horizon=100)
    there = Elsewhere(bot, tmp_path / "empty")
    code, _, err = await ootbot(there, "replay", PLACE, f"file://{folder}/archive")
    assert code == 0, err
    first, again = everything_in(bot.context.settings.data_dir), everything_in(tmp_path / "empty")
    differ = {name for name in first if first[name] != again[name]}
    assert differ <= MADE_LATER | IN_NO_DELIVERY | OWN_WORK
    same = {name for name in first if first[name] and name not in differ}
    assert same >= {
        "check_run",
        "pull_request",
        "workflow_run",
        "workflow_job",
        *OF_GRID,
        "word",
        "word_title",
    }
    assert "in no delivery" in DOCUMENT
