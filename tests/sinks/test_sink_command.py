"""`ootbot sink`: how sinks stand, whether they hold what is stored, and what mends them."""

from __future__ import annotations

import json
import re
import time

import aiohttp
import pytest

from tests.harness import UPSTREAM
from tests.ops.test_admin_pages import sign_in
from tests.serving import SQLITE
from tests.sinks.stored import files
from tests.sinks.test_archive import delivered

pytestmark = SQLITE


@pytest.fixture
def sink(bot, tables):
    """Run `ootbot sink ...` beside the bot."""
    from tests import command

    (bot.context.settings.data_dir / "ootbot.toml").write_text(
        "\n".join(f"[sinks.{name}]\n" + "\n".join(f"{key} = {json.dumps(value)}" for key, value in table.items())
                  for name, table in tables.items())
    )  # fmt: skip

    async def run(*arguments):
        done = await command.ootbot(bot, "sink", *arguments)
        bot.clock.at = max(bot.clock.at, round(time.time() * 1000))  # what the command asks for is due
        return done

    return run


async def test_the_list_says_how_each_export_stands(bot, github, sink):
    await delivered(bot, github)
    code, out, err = await sink("list", "--json")
    rows = {(row["sink"], row["what"]): row for row in json.loads(out)}
    assert (code, err) == (0, "")
    count = len(await bot.rows("delivery"))
    assert rows["archive", "deliveries"] == {
        "sink": "archive", "what": "deliveries", "address": rows["archive", "deliveries"]["address"], "status": "ok",
        "waiting": 0, "lag_seconds": 0, "sent": count, "refused": 0, "attention": "",
    }  # fmt: skip
    _, out, _ = await sink("list")
    assert f"archive  deliveries  ok  0 waiting  {count} sent" in out


async def test_check_finds_what_is_missing_other_or_too_much(bot, github, sink, folder):
    await delivered(bot, github)
    code, out, _ = await sink("check", "copies")
    assert code == 0, out
    assert "workflow_job: 1 rows, 0 missing; " in out
    (job,) = await bot.rows("workflow_job")
    (folder / "copies" / "workflow_job" / UPSTREAM / str(job["id"])).unlink()
    code, out, _ = await sink("check", "copies", "--what", "records", "--json")
    found = json.loads(out)["exports"]["workflow_job"]
    assert (code, found["same"], found["missing"]) == (1, False, 1)
    assert found["days"] == [{"day": "2026-09-21", "rows": 1, "missing": 1}]
    assert found["differences"][0]["key"] == f"[1000003,{job['id']}]"
    code, out, _ = await sink("backfill", "copies", "--what", "workflow_job")
    assert (code, out) == (0, "1 rows are to be sent to copies\n")
    code, out, _ = await sink("check", "copies", "--what", "workflow_job")
    assert (code, "1 of them wait" in out) == (0, True), "what waits is no difference"
    await bot.settle()
    code, out, _ = await sink("check", "copies", "--what", "workflow_job")
    assert (code, "0 missing" in out) == (0, True)


async def test_pause_resume_reset_and_retry(bot, github, sink):
    code, out, _ = await sink("pause", "archive")
    assert (code, out) == (0, "archive: 1 paused; `ootbot sink resume archive` sends what waits\n")
    await delivered(bot, github)
    _, out, _ = await sink("list")
    count = len(await bot.rows("delivery"))
    assert f"archive  deliveries  paused  {count} waiting  0 sent" in out
    await sink("resume", "archive")
    await bot.settle()
    _, out, _ = await sink("list")
    assert f"archive  deliveries  ok  0 waiting  {count} sent" in out
    code, out, _ = await sink("reset", "archive")
    assert (code, out.startswith("archive: 1 reset")) == (0, True)
    code, _, err = await sink("retry", "archive", "--all")
    assert (code, "no such row was refused by archive" in err) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("check", "nothing"), "no sink is called 'nothing'; there are archive, copies"),
        (("pause", "archive", "--what", "records"), "sink archive has no 'records'; there are deliveries"),
        (("retry", "archive"), "give one of --key and --all"),
        (("check", "archive", "--since", "soon"), "neither a duration"),
    ],
)
async def test_what_is_misspelt_is_named(sink, arguments, words):
    code, _, err = await sink(*arguments)
    assert (code, words in err) == (2, True), err


async def test_doctor_tries_every_sink(bot, sink, folder):
    from tests import command

    _, out, _ = await command.ootbot(bot, "doctor")
    (line,) = [line for line in out.splitlines() if " sink archive" in line]
    assert line.split()[0] == "ok", line
    assert list((folder / "archive").rglob("doctor/*")) == []


@pytest.fixture
async def browser(bot):
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
        await sign_in(bot, session)
        yield session


async def text_of_admin(bot, browser):
    async with browser.get(f"{bot.url}/admin") as answer:
        page = await answer.text()
    return " ".join(re.sub(r"<[^>]+>", " ", page).split())


async def test_the_administrator_sees_how_sinks_stand(bot, github, folder, browser):
    await delivered(bot, github)
    count = len(await bot.rows("delivery"))
    text = await text_of_admin(bot, browser)
    assert f"archive (file://{folder}/archive)" in text
    assert f"archive deliveries ok 0 {count}" in text


async def test_a_folder_that_cannot_be_written_waits_for_its_mending(bot, github, folder, browser):
    folder.mkdir()
    (folder / "archive").write_text("a file is in its way")
    bodies = await delivered(bot, github)
    bot.clock.advance(700)
    text = await text_of_admin(bot, browser)
    assert "archive deliveries away" in text
    assert f"{len(bodies)} rows wait, the oldest for" in text
    (folder / "archive").unlink()
    await bot.settle(horizon=400)
    archived = [key for key in files(folder / "archive") if key.endswith(".json.gz")]
    assert len(archived) == len(await bot.rows("delivery"))
    assert any(UPSTREAM in key for key in files(folder / "copies")), "the other sink never waited"
