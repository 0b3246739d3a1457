"""An empty database that is filled from the archive ends in the same records; damage is named."""

from __future__ import annotations

import sqlite3

from bot.ingest.records import TYPES
from tests.command import ootbot
from tests.harness import UPSTREAM, replace
from tests.serving import SQLITE
from tests.sinks.test_archive import delivered

PLACE = "--from-objects"


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
