"""Rebuilding the records from stored deliveries: `ootbot replay`, beside the running bot."""

from __future__ import annotations

import random
import uuid
from datetime import UTC, datetime

import pytest
import sqlalchemy as sa

from bot.ingest.tables import delivery, records
from tests.command import ootbot
from tests.harness import UPSTREAM
from tests.ingest.histories import HISTORIES, REPOSITORY
from tests.older_bodies import OLDER, as_stored_before
from tests.serving import SQLITE

USER = {"login": "octocat", "id": 7}
OTHERS = [
    ("push", {"ref": "refs/heads/main", "before": "0" * 40, "after": "a" * 40, "commits": []}),
    ("issue_comment", {"action": "created", "comment": {"id": 31, "body": "Thanks", "user": USER}}),
    ("issue_comment", {"action": "deleted", "comment": {"id": 31, "body": "Thanks", "user": USER}}),
    ("pull_request_review", {"action": "submitted", "review": {"id": 32, "state": "approved", "user": USER}}),
    ("pull_request_review_comment", {"action": "created", "comment": {"id": 33, "body": "Why?"}}),
    ("check_suite", {"action": "requested", "check_suite": {"id": 34, "status": "queued"}}),
    ("repository", {"action": "renamed", "repository": REPOSITORY | {"name": "project", "private": False}}),
    ("installation", {"action": "created", "installation": {"id": 35, "account": USER}, "repository": None}),
    ("star", {"action": "created", "starred_at": None}),
]


@pytest.fixture
async def history(bot, github):
    """Every kind of object, delivered in no order and partly twice; a pull request that was dispatched."""
    await emptied(bot)  # GitHub's answer about upstream came with no delivery
    deliveries = [one for history in HISTORIES.values() for one in history]
    deliveries += [(event, {"repository": REPOSITORY} | body) for event, body in OTHERS]
    numbered = [(event, body, str(uuid.uuid4())) for event, body in deliveries]
    random.Random(5).shuffle(numbered)
    for event, body, guid in numbered + numbered[:10]:
        assert (await bot.send(event, body, guid=guid))[0] == 202
        bot.clock.advance(0.25)
    await github.label(await github.open_pull(UPSTREAM), "ciflow/oot/npu")
    await bot.settle()
    assert {row["state"] for row in await bot.rows("delivery")} == {"handled", "ignored"}


async def everything(bot, tables):
    rows = {name: await bot.rows(name) for name in tables}
    return {name: sorted(map(repr, found)) for name, found in rows.items()}


async def emptied(bot):
    async with bot.store.transaction() as tx:
        for table in records.values():
            await tx.run(sa.delete(table))


@pytest.mark.logic
async def test_replaying_everything_rebuilds_every_record_table_row_by_row(bot, history):
    before = await everything(bot, records)
    assert all(before.values()), "each record table has rows to lose"
    others = ("task", "delivery", "oot_dispatch", "oot_check", "oot_comment")
    untouched = await everything(bot, others)
    await emptied(bot)
    for _ in range(2):
        code, out, err = await ootbot(bot, "replay", "--all")
        assert code == 0, err
        assert await everything(bot, records) == before
        assert await everything(bot, others) == untouched
    held = len(untouched["delivery"])
    assert out == f"replayed {held} of {held} deliveries\n"
    assert err.splitlines()[-1] == f"{held} of {held}"


@pytest.mark.logic
async def test_a_replay_over_what_is_there_changes_nothing(bot, history):
    before = await everything(bot, records)
    assert (await ootbot(bot, "replay", "--all"))[0] == 0
    assert await everything(bot, records) == before


@pytest.mark.logic
async def test_a_replay_deletes_no_row_whose_delivery_is_gone(bot, history):
    before = await everything(bot, records)
    async with bot.store.transaction() as tx:
        await tx.run(sa.delete(delivery).where(delivery.c.event != "issues"))
    assert (await ootbot(bot, "replay", "--all"))[0] == 0
    assert await everything(bot, records) == before


@pytest.mark.logic
@pytest.mark.parametrize("codec", OLDER)
async def test_deliveries_that_were_stored_in_another_form_are_replayed_too(bot, history, codec):
    before = await everything(bot, records)
    assert {row["codec"] for row in await bot.rows("delivery")} == {"zstd"}
    await as_stored_before(bot, codec)
    await emptied(bot)
    assert (await ootbot(bot, "replay", "--all"))[0] == 0
    assert await everything(bot, records) == before


@pytest.mark.logic
async def test_a_choice_of_deliveries_rebuilds_only_their_records(bot, history):
    before = await everything(bot, records)
    await emptied(bot)
    code, _, err = await ootbot(bot, "replay", "--event", "workflow_job", "--repo", "Org/Project")
    assert code == 0, err
    after = await everything(bot, records)
    assert {name for name, rows in after.items() if rows} - {"repository"} == {"workflow_job"}
    assert set(after["workflow_job"]) <= set(before["workflow_job"])


@pytest.mark.parametrize(("since", "newest"), [("9999-01-01", 0), ("3650d", None), ("third", 3)])
@SQLITE
async def test_only_what_came_since_a_moment_is_replayed(bot, history, since, newest):
    times = sorted(row["received_at"] for row in await bot.rows("delivery"))
    if since == "third":
        since = datetime.fromtimestamp(times[-3] / 1000, UTC).isoformat()
    code, out, _ = await ootbot(bot, "replay", "--since", since, "--dry-run")
    wanted = len(times) if newest is None else len([at for at in times if newest and at >= times[-newest]])
    assert (code, out.splitlines()[-1].split()[0]) == (0, str(wanted))


@pytest.mark.logic
async def test_counting_first_changes_nothing(bot, history):
    await emptied(bot)
    code, out, _ = await ootbot(bot, "replay", "--all", "--dry-run")
    counts = {line.split()[1]: int(line.split()[0]) for line in out.splitlines()}
    assert code == 0
    assert counts["workflow_job"] == len(HISTORIES["workflow_job"])
    assert counts["deliveries"] == len(await bot.rows("delivery"))
    assert not any((await everything(bot, records)).values())


@pytest.mark.logic
async def test_a_parked_delivery_that_can_be_read_now_counts_as_handled_and_causes_nothing(bot):
    event, body = HISTORIES["workflow_job"][0]
    await bot.send(event, body, guid="readable")
    await bot.send(event, {"workflow_job": "none", "repository": REPOSITORY}, guid="unreadable")
    await bot.settle()
    async with bot.store.transaction() as tx:  # as a bug would have left it, that is mended since
        change = {"state": "parked", "error": "KeyError: a bug"}
        await tx.run(sa.update(delivery).where(delivery.c.guid == "readable").values(change))
        await tx.run(sa.delete(records["workflow_job"]))
    code, out, err = await ootbot(bot, "replay", "--all")
    assert code == 1
    assert "unreadable: Unreadable: workflow_job is not an object" in err
    assert out == "replayed 1 of 2 deliveries\n"
    states = {row["guid"]: (row["state"], row["error"]) for row in await bot.rows("delivery")}
    assert states["readable"] == ("handled", None)
    assert states["unreadable"][0] == "parked"
    assert len(await bot.rows("workflow_job")) == 1


@pytest.mark.logic
async def test_a_delivery_still_to_be_handled_is_handled_after_a_replay(bot, github):
    await github.open_pull(UPSTREAM)
    assert (await ootbot(bot, "replay", "--all"))[0] == 0
    assert github.dispatches == []
    await bot.settle()
    assert len(github.dispatches) == 4


@SQLITE
async def test_a_replay_of_nothing_in_particular_is_refused(bot):
    for arguments in ((), ("--all", "--event", "push"), ("--since", "yesterday")):
        code, _, err = await ootbot(bot, "replay", *arguments)
        assert code == 2
        assert "Usage" in err
