"""A backup holds what the spool holds: deliveries that were acknowledged and not moved into the inbox yet."""

import contextlib
import sqlite3

from bot.ingest.inbox import Incoming
from tests.command import ootbot
from tests.serving import SQLITE


@SQLITE
async def test_deliveries_of_the_spool_are_in_the_copy_once(bot, tmp_path):
    for guid in ("moved", "spooled", "moved"):
        await bot.context.intake.put(Incoming(guid=guid, event="push", body=b"{}"))
        if guid == "moved":
            await bot.context.intake.move_arrived()
    await bot.context.intake.put(Incoming(guid="spooled too", event="push", body=b"{}"))
    copy = tmp_path / "copy.db"
    code, said, _ = await ootbot(bot, "backup", str(copy))
    assert (code, "checked" in said) == (0, True)
    assert (await bot.context.intake.arrived())[0] == 1, "nothing was moved by it"
    with contextlib.closing(sqlite3.connect(copy)) as file:
        found = file.execute("SELECT guid, state FROM delivery ORDER BY id").fetchall()
    assert found == [(guid, "stored") for guid in ("moved", "spooled", "spooled too")]
