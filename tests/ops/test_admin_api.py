"""/api/admin: what is stuck is seen and goes on, for holders of ADMIN_TOKEN."""

import asyncio

import pytest
import sqlalchemy as sa

from bot.ingest.tables import delivery as delivery_table
from tests.harness import L4, UPSTREAM, make_settings, running
from tests.serving import POSTGRES, SQLITE
from tests.workers import eventually

ADMIN = {"Authorization": "Bearer an admin token of ours"}
ENDPOINTS = [
    ("GET", "/api/admin/deliveries"),
    ("GET", "/api/admin/deliveries/some-guid"),
    ("POST", "/api/admin/deliveries/some-guid/replay"),
    ("GET", "/api/admin/tasks"),
    ("POST", "/api/admin/tasks/1/retry"),
]


@pytest.mark.parametrize(("method", "path"), ENDPOINTS)
@SQLITE
async def test_only_the_administrator_gets_an_answer(bot, method, path):
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "an admin token of ours"}):
        async with bot.http.request(method, bot.url + path, headers=headers) as answer:
            assert (answer.status, (await answer.json())["error"]) == (401, "unauthorized")
            assert answer.headers["WWW-Authenticate"] == "Bearer"


@SQLITE
async def test_without_a_token_set_the_endpoints_are_closed(github, issuer, clock, tmp_path, database_url):
    settings = make_settings(
        github=github, issuer=issuer, app=github.app, folder=tmp_path, database_url=database_url,
        admin_token=None,
    )  # fmt: skip
    async with running(settings, github=github, issuer=issuer, app=github.app, clock=clock) as bot:
        for method, path in ENDPOINTS:
            status, body = await bot.request(method, path, headers={"Authorization": "Bearer "})
            assert (status, body["error"]) == (404, "not_found")


@pytest.mark.logic
async def test_a_delivery_is_shown_with_its_headers_and_payload_but_no_signature(bot):
    payload = {"action": "created", "number": 12345678901234567890, "text": "ünï \u2028"}
    headers = {"X-GitHub-Hook-ID": "77", "User-Agent": "GitHub-Hookshot/1", "X-Hub-Signature": "sha1=00",
               "Authorization": "Bearer a secret", "X-GitHub-Enterprise-Version": "3.19\x80"}  # fmt: skip
    await bot.send("star", payload, guid="one", headers=headers)
    for state in ("stored", "ignored"):
        status, body = await bot.get("/api/admin/deliveries/one", headers=ADMIN)
        shown = body["delivery"]
        assert (status, shown["state"], shown["event"], shown["source"]) == (200, state, "star", "webhook")
        assert shown["payload"] == payload
        assert shown["received_at"] == "2026-09-21T14:13:20Z"
        assert shown["headers"].keys() == {
            "X-GitHub-Event", "X-GitHub-Delivery", "X-GitHub-Hook-ID", "User-Agent", "X-GitHub-Enterprise-Version",
        }  # fmt: skip
        await bot.settle()


@pytest.mark.logic
async def test_a_compressed_delivery_is_shown_as_it_came(bot):
    payload = {"action": "created", "text": "again and again " * 500}
    await bot.send("star", payload, guid="one")
    await bot.settle()
    (row,) = await bot.rows("delivery")
    assert (row["codec"], len(row["body"]) < 500) == ("zstd", True)
    _, body = await bot.get("/api/admin/deliveries/one", headers=ADMIN)
    assert body["delivery"]["payload"] == payload
    assert body["delivery"]["size"] > 8000


@pytest.mark.logic
async def test_a_parked_delivery_is_handled_in_full_when_it_is_replayed(bot, github):
    pull = await github.open_pull(UPSTREAM)
    (guid,) = {row.guid for row in github.deliveries if row.event == "pull_request"}
    await bot.context.intake.move_arrived()
    async with bot.store.transaction() as tx:  # as a bug would have left it, that is mended since
        change = {"state": "parked", "attempts": 5, "error": "KeyError: a bug"}
        await tx.run(sa.update(delivery_table).where(delivery_table.c.guid == guid).values(change))
    await bot.settle()
    assert github.dispatches == []
    _, body = await bot.get(f"/api/admin/deliveries/{guid}", headers=ADMIN)
    assert (body["delivery"]["state"], body["delivery"]["error"]) == ("parked", "KeyError: a bug")
    for _ in range(2):
        status, body = await bot.request("POST", f"/api/admin/deliveries/{guid}/replay", headers=ADMIN)
        assert (status, body["state"]) == (202, "stored")
        await bot.settle()
    assert len(github.dispatches) == 4
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / gate"][0] == "in_progress"


@SQLITE
async def test_what_is_not_held_or_not_ours_is_not_replayed(bot):
    await bot.send(
        "push", {"ref": "x"}, guid="foreign", headers={"X-GitHub-Hook-Installation-Target-ID": "9"}
    )
    status, body = await bot.request("POST", "/api/admin/deliveries/foreign/replay", headers=ADMIN)
    assert (status, body["error"]) == (409, "foreign")
    for guid in ("unknown", "a" * 200):
        for method, path in (("GET", ""), ("POST", "/replay")):
            status, body = await bot.request(method, f"/api/admin/deliveries/{guid}{path}", headers=ADMIN)
            assert (status, body["error"]) == (404, "not_found")


async def test_a_dead_task_is_listed_and_done_when_it_is_retried(bot, github):
    async with bot.store.transaction() as tx:
        tx.enqueue("relay", "gone")
    await bot.settle()
    _, body = await bot.get("/api/admin/tasks?state=dead", headers=ADMIN)
    (dead,) = body["tasks"]
    assert (dead["kind"], dead["key"], "not stored any more" in dead["error"]) == ("relay", "gone", True)
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    async with bot.store.transaction() as tx:
        await tx.run(
            sa.update(delivery_table).where(delivery_table.c.event == "pull_request").values(guid="gone")
        )
    status, body = await bot.request("POST", f"/api/admin/tasks/{dead['id']}/retry", headers=ADMIN)
    assert (status, body["state"]) == (202, "waiting")
    await bot.settle()
    assert (await bot.get("/api/admin/tasks?state=dead", headers=ADMIN))[1]["tasks"] == []
    assert len([sent for sent in github.dispatches if sent.repo.full_name == L4]) == 2
    status, body = await bot.request("POST", f"/api/admin/tasks/{dead['id']}/retry", headers=ADMIN)
    assert (status, body["error"]) == (409, "not_retryable")
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / gate"][0] == "in_progress"


async def test_a_dead_task_whose_key_waits_again_is_joined_to_the_waiting_one(bot, github):
    async with bot.store.transaction() as tx:
        tx.enqueue("relay", "gone")
    await bot.settle()
    async with bot.store.transaction() as tx:
        tx.enqueue("relay", "gone", delay=3600)
    (dead,) = [row for row in await bot.rows("task") if row["state"] == "dead"]
    assert (await bot.request("POST", f"/api/admin/tasks/{dead['id']}/retry", headers=ADMIN))[0] == 202
    rows = {row["state"]: row for row in await bot.rows("task") if row["key"] == "gone"}
    assert sorted(rows) == ["done", "waiting"]
    assert rows["waiting"]["due_at"] == bot.clock.now()


@POSTGRES
async def test_a_dead_task_whose_key_is_asked_for_at_the_same_moment_is_joined_too(bot):
    async with bot.store.transaction() as tx:
        tx.enqueue("relay", "gone")
    await bot.settle()
    (dead,) = [row for row in await bot.rows("task") if row["state"] == "dead"]
    path = f"/api/admin/tasks/{dead['id']}/retry"

    async def waits():
        async with bot.store.read() as tx:
            return await tx.rows(sa.text("SELECT 1 FROM pg_locks WHERE NOT granted"))

    async with bot.store.transaction() as tx:
        tx.enqueue("relay", "gone", delay=3600)
        await tx.run_before_commit()
        asked = asyncio.create_task(bot.request("POST", path, headers=ADMIN))
        await eventually(waits, "a request that waits for the key")
    assert (await asked)[0] == 202
    rows = {row["state"]: row for row in await bot.rows("task") if row["key"] == "gone"}
    assert sorted(rows) == ["done", "waiting"]
    assert rows["waiting"]["due_at"] == bot.clock.now()


async def test_tasks_are_listed_page_by_page_newest_first(bot, github):
    await github.open_pull(UPSTREAM)
    await bot.settle()
    total = len(await bot.rows("task"))
    seen, before = [], ""
    while before is not None:
        _, body = await bot.get(f"/api/admin/tasks?limit=5{before}", headers=ADMIN)
        seen += [task["id"] for task in body["tasks"]]
        before = body["next"] and f"&before={body['next']}"
    assert seen == sorted(seen, reverse=True)
    assert len(seen) == total
    _, body = await bot.get("/api/admin/tasks?state=waiting", headers=ADMIN)
    assert {task["state"] for task in body["tasks"]} == {"waiting"}
    for query in ("state=lost", "limit=0", "limit=501"):
        assert (await bot.get(f"/api/admin/tasks?{query}", headers=ADMIN))[0] == 400
    for identifier in ("0", "x", "999999", "9" * 30):
        assert (await bot.request("POST", f"/api/admin/tasks/{identifier}/retry", headers=ADMIN))[0] == 404


@pytest.mark.logic
async def test_room_is_watched_where_the_database_is_a_file_of_ours(bot, database_url):
    _, text = await bot.get("/metrics")
    assert ('ootbot_disk_free_bytes{database="sqlite"}' in text) is (database_url is None)
    assert "\nootbot_disk_free_bytes 0" not in text
