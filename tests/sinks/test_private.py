"""Private repositories leave only where a sink asks for them; what left before is deleted once one turns private."""

from __future__ import annotations

import pytest

from bot.demo.github.serializers import repository
from tests.harness import UPSTREAM, UPSTREAM_ID
from tests.serving import SQLITE
from tests.sinks.stored import files

pytestmark = pytest.mark.logic


def everything(folder):
    return {key: body for name in ("archive", "copies") for key, body in files(folder / name).items()}


async def ran(bot, github, repo):
    run = await github.start_run(repo, event="push")
    await github.finish_job(await github.start_job(run, "a-job-of-it"), "success")
    await bot.settle(horizon=90)


async def test_nothing_of_a_private_repository_leaves(bot, github, folder):
    github.add_repo("pytorch/secret-plans", private=True)
    await ran(bot, github, UPSTREAM)
    await ran(bot, github, "pytorch/secret-plans")
    assert [row for row in await bot.rows("workflow_job") if row["repo"] == "pytorch/secret-plans"]
    stored = everything(folder)
    assert any(UPSTREAM.encode() in body for body in stored.values())
    for key, body in stored.items():
        assert "secret-plans" not in key
        assert b"secret-plans" not in body, key
    assert await bot.rows("sink_mark") == [], "nor does it wait"


async def test_it_leaves_where_a_sink_asks_for_it(bot, github, folder):
    github.add_repo("pytorch/secret-plans", private=True)
    await ran(bot, github, "pytorch/secret-plans")
    assert any("secret-plans" in key for key in everything(folder))


test_it_leaves_where_a_sink_asks_for_it = pytest.mark.parametrize(
    "tables",
    [
        {
            "copies": {
                "kind": "objects",
                "url": "FOLDER/copies",
                "layout": "upstream",
                "what": ["records"],
                "private": True,
            }
        }
    ],
    indirect=True,
)(test_it_leaves_where_a_sink_asks_for_it)


async def test_once_a_repository_turns_private_its_copies_are_deleted(bot, github, folder):
    await ran(bot, github, UPSTREAM)
    await ran(bot, github, "org/npu-backend")
    before = everything(folder)
    assert any(UPSTREAM in key for key in before)
    github.state.repo(UPSTREAM).private = True
    about = repository.repository(github.state, github.state.repo(UPSTREAM)) | {
        "updated_at": "2030-01-01T00:00:00Z"
    }
    await bot.send("repository", {"action": "privatized", "repository": about})
    await bot.settle(horizon=200)
    left = everything(folder)
    kept = {key for key in left if not key.startswith("raw/manifest/")}
    assert [key for key in kept if UPSTREAM in key] == []
    ours = {row["guid"] for row in await bot.rows("delivery") if row["repository_id"] == UPSTREAM_ID}
    assert [key for key in kept if any(guid in key for guid in ours)] == []
    assert any("org/npu-backend" in key for key in kept), "others stay"
    async with bot.store.transaction() as tx:
        tx.enqueue("sinks", "")
    await bot.settle()
    rows = [row for row in await bot.rows("sink_repository") if row["repository_id"] == UPSTREAM_ID]
    assert [(row["sink"], row["deleted"]) for row in rows] == [("archive", True), ("copies", True)]
    headers = {"Authorization": f"Bearer {bot.context.settings.admin_token}"}
    _, ready = await bot.get("/readyz", headers=headers)
    assert [note for note in ready["notes"] if "sink" in note] == []


async def test_a_delivery_about_a_private_repository_we_know_nothing_of_stays_here(bot, folder):
    repository = {
        "id": 77,
        "name": "x",
        "full_name": "acme/x",
        "private": True,
        "owner": {"login": "acme", "id": 7},
    }
    body = {
        "action": "created",
        "installation": {"id": 5, "account": {"login": "acme", "id": 7}},
        "repositories": [repository],
    }
    status, _ = await bot.send("installation", body)
    assert status == 202
    await bot.send(
        "star", {"action": "created", "note": 'he wrote "private": true', "sender": {"login": "a"}}
    )
    await bot.settle(horizon=90)
    stored = {key: body for key, body in everything(folder).items() if key.startswith("raw/")}
    assert not any(b"acme/x" in body for body in stored.values())
    assert any(b"he wrote" in body for body in stored.values()), "what only quotes it does leave"


@SQLITE
async def test_only_repositories_that_the_globs_match_leave(bot, github, folder):
    await ran(bot, github, UPSTREAM)
    await ran(bot, github, "org/npu-backend")
    jobs = [key for key in everything(folder) if key.startswith("workflow_job/")]
    assert [key.split("/")[1] for key in jobs] == ["org"]


test_only_repositories_that_the_globs_match_leave = pytest.mark.parametrize(
    "tables",
    [
        {
            "copies": {
                "kind": "objects",
                "url": "FOLDER/copies",
                "layout": "upstream",
                "what": ["records"],
                "repos": ["ORG/*"],
            }
        }
    ],
    indirect=True,
)(test_only_repositories_that_the_globs_match_leave)
