"""Deliveries that were lost, cannot be handled, or are read once more."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections import Counter
from datetime import UTC, datetime

import pytest
import sqlalchemy as sa

from bot.ingest.tables import delivery, records
from tests.command import ootbot
from tests.flows.scenarios import ASKED, NOWHERE, ROUND, a_job, asked_for, log_row, metric, stored, unseen
from tests.harness import L4, SECRET, UPSTREAM, UPSTREAM_ID, make_settings, running
from tests.ingest.histories import HISTORIES, REPOSITORY
from tests.older_bodies import OLDER, as_stored_before
from tests.serving import SQLITE

# Deliveries lost in an outage are found in GitHub's delivery log and asked for again.


@pytest.mark.logic
async def test_after_an_outage_everything_is_recovered_and_only_what_was_missed_is_asked_for(
    bot, github, outage
):
    arrived = []
    for number in range(1, 1161):
        row = log_row(github, "workflow_job", a_job(number), status=202 if number <= 900 else 502)
        if number > 1030:  # failed first, came in when it was sent again
            log_row(github, "workflow_job", a_job(number), guid=row.guid, status=202)
        if number <= 900 or number > 1030:
            arrived.append((a_job(number), row.guid))
        bot.clock.advance(20)
    for start in range(0, len(arrived), 50):
        sent = (bot.send("workflow_job", job, guid=guid) for job, guid in arrived[start : start + 50])
        assert {status for status, _ in await asyncio.gather(*sent)} == {202}
    missed_pulls = [await github.open_pull(UPSTREAM) for _ in range(3)]
    lost = await unseen(github)
    known = await stored(bot)
    missed = {row.guid for row in github.deliveries} - known.keys()
    for number in range(270 - len(missed)):
        row = log_row(github, "workflow_job", a_job(5000 + number))
        missed.add(row.guid)
        if number < 20:  # sent again by hand, in vain
            log_row(github, "workflow_job", a_job(5000 + number), guid=row.guid)
        bot.clock.advance(20)
    for _ in range(2000 - len(github.deliveries)):
        log_row(github, "star", {"action": "created"})
    assert (len(github.deliveries), len(missed)) == (2000, 270)

    outage()
    for _ in range(4):
        await bot.wait(ROUND)
    assert asked_for(github) == dict.fromkeys(missed, 1)
    assert missed <= (await stored(bot)).keys()
    for pull in (*missed_pulls, lost):
        dispatched = [
            sent.repo.full_name
            for sent in github.dispatches
            if sent.client_payload["payload"]["pull_request"]["number"] == pull.number
        ]
        assert sorted(dispatched) == sorted(set(dispatched))
        assert L4 in dispatched
        assert bot.checks(UPSTREAM, pull.head_sha)["oot / gate"][0] == "in_progress"
    assert [source for source in (await stored(bot)).values() if source != "webhook"] == ["api"]
    jobs = {row.payload["workflow_job"]["id"] for row in github.deliveries if row.event == "workflow_job"}
    assert {row["id"] for row in await bot.rows("workflow_job")} == jobs


@pytest.mark.logic
async def test_what_strangers_repositories_sent_comes_after_ours_a_little_at_a_time(bot, github, outage):
    """Anybody may install a public App, and have thousands of deliveries sent."""
    job = a_job(1) | {"repository": {"id": 99, "full_name": "some/body"}}
    assert (await bot.send("workflow_job", job))[0] == 202
    await bot.settle()
    strange = {log_row(github, "workflow_job", job, repository_id=99).guid for _ in range(500)}
    bot.clock.advance(60)
    pull = await github.open_pull(UPSTREAM)
    (first,) = (row.guid for row in github.deliveries if row.event == "pull_request")
    lost = await unseen(github)
    outage()
    await bot.wait(ROUND)
    asked = list(asked_for(github))
    assert asked[0] == first
    assert len(strange.intersection(asked)) <= 60
    for _ in range(3):
        await bot.wait(ROUND)
    assert not strange <= (await stored(bot)).keys()
    for one in (pull, lost):  # of the second no delivery tells: reconcile waits for none of strangers'
        assert bot.checks(UPSTREAM, one.head_sha)["oot / gate"][0] == "in_progress"
    for _ in range(6):
        await bot.wait(ROUND)
    assert strange <= (await stored(bot)).keys()


@pytest.mark.logic
async def test_while_nobody_can_reach_the_bot_it_fetches_what_it_asked_for_in_vain(bot, github, outage):
    """An hour and more behind a broken proxy, with the bot up: every sweep asks, and nothing comes in."""
    before = await metric(bot, "ootbot_deliveries_lost_total")
    pulls = []
    for _ in range(6):
        pulls.append(await github.open_pull(UPSTREAM))
        await bot.wait(ROUND)
    for _ in range(3):
        await bot.wait(ROUND)
    assert max(asked_for(github).values()) == 2
    assert {row.guid for row in github.deliveries if row.event == "pull_request"} <= (
        await stored(bot)
    ).keys()
    for pull in pulls:
        assert bot.checks(UPSTREAM, pull.head_sha)["oot / gate"][0] == "in_progress"
    outage()
    await bot.wait(ROUND)
    assert await metric(bot, "ootbot_deliveries_lost_total") == before
    assert len(github.dispatches) == 4 * len(pulls)


@pytest.mark.logic
async def test_what_left_githubs_log_is_lost_and_counted(bot, github, outage):
    before = await metric(bot, "ootbot_deliveries_lost_total")
    row = log_row(github, "push", {"ref": "refs/heads/main"})
    await bot.wait(ROUND)
    github.deliveries.remove(row)
    for _ in range(4):
        await bot.wait(ROUND)
    assert await metric(bot, "ootbot_deliveries_lost_total") == before + 1


@pytest.mark.logic
async def test_a_log_we_are_not_let_into_loses_nothing(bot, github, outage):
    before = await metric(bot, "ootbot_deliveries_lost_total")
    row = log_row(github, "workflow_job", a_job(1))
    github.faults.add(
        path=r"/app/hook/deliveries/\d", method="GET|POST", status=403, body={"message": "No"}, times=40
    )
    for _ in range(6):
        await bot.wait(ROUND)
    github.faults.clear()
    for _ in range(4):
        await bot.wait(ROUND)
    assert row.guid in await stored(bot)
    assert await metric(bot, "ootbot_deliveries_lost_total") == before


@pytest.mark.logic
async def test_a_sweep_that_github_slows_down_goes_on_where_it_was(bot, github):
    rows = [log_row(github, "workflow_job", a_job(number)) for number in range(5)]
    github.faults.add(method="POST", path=ASKED, status=502)
    github.faults.add(method="POST", path=ASKED, status=429, headers={"Retry-After": "90"})
    await bot.wait(ROUND)
    await bot.wait(60)
    await bot.wait(120)
    assert {row.guid for row in rows[1:]} <= (await stored(bot)).keys()
    await bot.wait(ROUND)
    assert {row.guid for row in rows} <= (await stored(bot)).keys()
    answered = Counter(row.guid for row in github.deliveries if row.redelivery)
    assert answered == dict.fromkeys((row.guid for row in rows), 1)


@pytest.fixture
def two_apps(github, issuer, tmp_path, database_url, app_key):
    """The backends' own App, a repository only that is installed on, and the settings of a bot that serves both."""
    second = github.register_app(
        webhook_url=NOWHERE, webhook_secret=SECRET, slug="ootbot-relay", private_key_pem=app_key
    )
    settings = make_settings(
        github=github, issuer=issuer, app=github.app, folder=tmp_path, database_url=database_url,
        relay_app_id=second.app_id, relay_private_key=second.private_key_pem, relay_webhook_secret=(SECRET,),
    )  # fmt: skip
    return second, github.add_repo("org/other-backend", install=[second]), settings


async def test_both_apps_logs_are_swept_where_the_backends_have_their_own(github, issuer, clock, two_apps):
    second, backend, settings = two_apps
    async with running(settings, github=github, issuer=issuer, app=github.app, clock=clock) as bot:
        run = await github.start_run(backend)
        second.webhook_url = bot.app.webhook_url
        await bot.wait(ROUND)
        assert [row["id"] for row in await bot.rows("workflow_run")] == [run.id]


@pytest.mark.logic
async def test_one_app_that_is_refused_does_not_keep_the_others_log_from_being_swept(
    github, issuer, clock, two_apps
):
    second, backend, settings = two_apps
    github.faults.add(
        method="GET", path="/app/hook/deliveries$", status=403, body={"message": "suspended"}, times=1
    )
    async with running(settings, github=github, issuer=issuer, app=github.app, clock=clock) as bot:
        run = await github.start_run(backend)
        second.webhook_url = bot.app.webhook_url
        await bot.wait(61)  # the first sweep: the first App's is refused
        await bot.wait(ROUND)
        assert [row["id"] for row in await bot.rows("workflow_run")] == [run.id]
        github.faults.add(
            method="GET", path="/app/hook/deliveries$", status=403, body={"message": "no"}, times=10_000
        )
        await bot.wait(25 * 3600)
        notes = (await bot.get("/readyz"))[1]["notes"]
        assert [str(app.app_id) in " ".join(notes) for app in (github.app, second)] == [True, True]


# What becomes of a delivery that cannot be handled? It is tried five times, then parked, and holds nobody up.


NO_THIRTEENS_IN_SQLITE = (
    "CREATE TRIGGER refuse BEFORE INSERT ON issue WHEN NEW.number = 13 BEGIN SELECT RAISE(ABORT, 'no thirteens'); END",
)
NO_THIRTEENS_IN_POSTGRES = (
    "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no thirteens'; END $$",
    "CREATE TRIGGER refuse BEFORE INSERT ON issue FOR EACH ROW WHEN (NEW.number = 13) EXECUTE FUNCTION refuse()",
)


@pytest.fixture
async def superstitious(bot):
    """A database that refuses one row; returns what makes it take it."""
    async with bot.store.transaction() as tx:
        for statement in NO_THIRTEENS_IN_SQLITE if bot.store.sqlite else NO_THIRTEENS_IN_POSTGRES:
            await tx.run(sa.text(statement))

    async def converted():
        async with bot.store.transaction() as tx:
            on = "" if bot.store.sqlite else " ON issue"
            await tx.run(sa.text(f"DROP TRIGGER refuse{on}"))

    return converted


def an_issue(number):
    repository = {"id": UPSTREAM_ID, "full_name": UPSTREAM, "private": False}
    issue = {"id": number, "number": number, "title": "It is slow", "updated_at": "2026-01-02T03:04:05Z"}
    return {"action": "opened", "issue": issue, "repository": repository}


async def states(bot):
    return {row["guid"]: (row["state"], row["attempts"]) for row in await bot.rows("delivery")}


async def test_one_bad_delivery_is_tried_five_times_and_never_holds_up_the_others(bot, superstitious):
    before = await counted(bot, "parked")
    for number in (12, 13, 14):
        await bot.send("issues", an_issue(number), guid=f"issue-{number}")
    await bot.settle()
    assert (await states(bot))["issue-13"] == ("stored", 1)
    assert {row["number"] for row in await bot.rows("issue")} == {12, 14}
    began = bot.clock.now()
    await bot.settle(horizon=24 * 3600)
    assert bot.clock.now() - began > 60_000, "the tries keep a growing distance"
    assert await states(bot) == {
        "issue-12": ("handled", 1), "issue-13": ("parked", 5), "issue-14": ("handled", 1)
    }  # fmt: skip
    assert await counted(bot, "parked") == before + 1
    admin = {"Authorization": "Bearer an admin token of ours"}
    assert await gauge(bot) == 1
    (note,) = (await bot.get("/readyz"))[1]["notes"]
    assert "/admin/deliveries?state=parked" in note
    _, listed = await bot.get("/api/admin/deliveries?state=parked", headers=admin)
    assert [one["guid"] for one in listed["deliveries"]] == ["issue-13"]
    _, shown = await bot.get("/api/admin/deliveries/issue-13", headers=admin)
    assert "no thirteens" in shown["delivery"]["error"]
    await superstitious()
    status, _ = await bot.request("POST", "/api/admin/deliveries/issue-13/replay", headers=admin)
    assert status == 202
    await bot.settle()
    assert (await states(bot))["issue-13"][0] == "handled"
    assert {row["number"] for row in await bot.rows("issue")} == {12, 13, 14}
    assert (await gauge(bot), (await bot.get("/readyz"))[1]["notes"]) == (0, [])


@pytest.mark.logic
async def test_events_without_a_handler_are_kept_and_counted(bot):
    before = await counted(bot, "no_handler")
    await bot.send(
        "star", {"action": "created", "repository": {"id": UPSTREAM_ID, "full_name": UPSTREAM}}, guid="star"
    )
    await bot.settle()
    assert await states(bot) == {"star": ("ignored", 1)}
    assert await counted(bot, "no_handler") == before + 1


async def counted(bot, outcome):
    _, text = await bot.get("/metrics")
    name = f'ootbot_deliveries_applied_total{{outcome="{outcome}"}}'
    return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(name))


async def gauge(bot):
    _, text = await bot.get("/metrics")
    return float(
        next(line for line in text.splitlines() if line.startswith("ootbot_parked_deliveries")).split()[-1]
    )


UNRECORDED = {  # a database that cannot hold a reason, as one in LATIN1 cannot hold some
    True: "CREATE TRIGGER forget BEFORE UPDATE ON {table} WHEN NEW.error LIKE '%{words}%' "
    "BEGIN SELECT RAISE(ABORT, 'no such text'); END",
    False: "CREATE TRIGGER forget BEFORE UPDATE ON {table} FOR EACH ROW WHEN (NEW.error LIKE '%{words}%') "
    "EXECUTE FUNCTION refuse()",
}


async def forget(bot, table, words):
    async with bot.store.transaction() as tx:
        await tx.run(sa.text(UNRECORDED[bot.store.sqlite].format(table=table, words=words)))


async def test_a_reason_that_cannot_be_stored_parks_the_delivery_without_it(bot, superstitious):
    await forget(bot, "delivery", "thirteens")
    for number in (12, 13, 14):
        await bot.send("issues", an_issue(number), guid=f"issue-{number}")
    await bot.settle(horizon=24 * 3600)
    assert (await states(bot))["issue-13"] == ("parked", 5)
    assert {row["number"] for row in await bot.rows("issue")} == {12, 14}
    (row,) = [row for row in await bot.rows("delivery") if row["guid"] == "issue-13"]
    assert row["error"] == "the database cannot store why; see the log"


async def test_a_failure_that_cannot_be_recorded_stops_no_other_delivery(bot, superstitious):
    await forget(bot, "delivery", "")
    for number in (12, 13, 14):
        await bot.send("issues", an_issue(number), guid=f"issue-{number}")
    for _ in range(3):
        await bot.worker.step()
    assert {row["number"] for row in await bot.rows("issue")} == {12, 14}
    assert (await states(bot))["issue-13"][0] == "stored"
    status, ready = await bot.get("/readyz")
    assert status == 503
    assert "that delivery issue-13 failed cannot be recorded" in ready["missing"][0]


async def test_a_task_whose_reason_cannot_be_stored_ends_without_it(bot, superstitious):
    await forget(bot, "task", "names no run")
    async with bot.store.transaction() as tx:
        tx.enqueue("utilization", "neither")
    await bot.settle()
    (row,) = [row for row in await bot.rows("task") if row["key"] == "neither"]
    assert (row["state"], row["error"]) == ("dead", "the database cannot store why; see the log")


# Rebuilding the records from stored deliveries: `ootbot replay`, beside the running bot.


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
