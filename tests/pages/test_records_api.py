"""The JSON of records: rows, pages of rows, their history."""

import uuid

import pytest

from bot.ingest.tables import TYPES
from tests.harness import L4, UPSTREAM
from tests.pages.reading import ADMIN, read


@pytest.mark.logic
async def test_a_record_is_one_flat_object_with_githubs_names(bot, github, pull):
    row = await read(bot, f"/api/records/pull_request/{UPSTREAM.upper()}/{pull.number}")
    assert (row["number"], row["title"], row["head_sha"]) == (pull.number, "Make it faster", pull.head_sha)
    assert (row["repo"], row["user_login"], row["state"]) == (UPSTREAM, "octocat", "open")
    assert row["created_at"].endswith("Z")
    assert row["received_at"].endswith("Z")
    assert row["deleted_at"] is None
    assert "merge_state" not in row
    assert "ok" not in row


async def test_a_run_is_shown_at_its_newest_attempt_unless_asked_otherwise(bot, github):
    run = await github.start_run(L4, event="push", name="CI")
    await github.finish_run(run, "failure")
    await bot.settle()
    repository = github.state.repo(L4)
    again = {
        "action": "requested",
        "repository": {"id": repository.id, "full_name": L4},
        "workflow_run": {"id": run.id, "run_attempt": 2, "status": "queued"},
    }
    await bot.send("workflow_run", again)
    await bot.settle()
    path = f"/api/records/workflow_run/{L4}"
    newest = await read(bot, f"{path}/{run.id}")
    assert (newest["run_attempt"], newest["status"]) == (2, "queued")
    first = await read(bot, f"{path}/{run.id}?attempt=1")
    assert (first["run_attempt"], first["conclusion"]) == (1, "failure")
    assert [row["run_attempt"] for row in (await read(bot, path))["rows"]] == [2, 1]
    first_page = await read(bot, f"{path}?limit=1")
    second_page = await read(bot, f"{path}?limit=1&before={first_page['next']}")
    assert [second_page["rows"][0]["run_attempt"], second_page["next"]] == [1, None]


async def test_history_is_found_by_its_delivery_and_listed_newest_first(bot, github, pull):
    for label in ("one", "two", "three"):
        bot.clock.advance(1)
        await github.label(pull, label)
    await bot.settle()
    path = f"/api/records/pull_label_event/{UPSTREAM}"
    rows, before = [], ""
    while before is not None:
        page = await read(bot, f"{path}?limit=2{before}")
        rows += page["rows"]
        before = page["next"] and f"&before={page['next']}"
    assert [row["label_name"] for row in rows] == ["three", "two", "one"]
    assert await read(bot, f"{path}/{rows[1]['guid']}") == rows[1]


async def test_a_page_of_records_is_no_larger_than_memory_allows(bot):
    """Anybody may install a public App, and write as much into a commit's message as Git takes."""
    strange = {"id": 99, "full_name": "some/body", "private": False}
    for digit in "0123456789ab":
        message = digit + "x" * 1_000_000
        pushed = {"ref": "refs/heads/main", "after": digit * 40, "head_commit": {"message": message}}
        assert (await bot.send("push", pushed | {"repository": strange}))[0] == 202
    await bot.settle()
    seen, before = [], ""
    while before is not None:
        page = await read(bot, f"/api/records/push/some/body?limit=500{before}")
        assert sum(len(row["head_commit_message"]) for row in page["rows"]) < 9_000_000
        seen += [row["after"][0] for row in page["rows"]]
        before = page["next"] and f"&before={page['next']}"
    assert sorted(seen) == list("0123456789ab")


async def test_pages_of_records_show_everything_once_newest_first(bot, github, pull):
    for number in range(6):
        await github.open_pull(UPSTREAM, title=f"Change {number}")
    await bot.settle()
    numbers, before = [], ""
    while before is not None:
        page = await read(bot, f"/api/records/pull_request/{UPSTREAM}?limit=3{before}")
        numbers += [row["number"] for row in page["rows"]]
        before = page["next"] and f"&before={page['next']}"
    assert numbers == [7, 6, 5, 4, 3, 2, 1]


@pytest.mark.logic
async def test_an_installation_belongs_to_no_repository(bot):
    payload = {
        "action": "created",
        "installation": {
            "id": 99,
            "account": {"login": "octo", "id": 5},
            "updated_at": "2026-09-01T00:00:00Z",
        },
    }
    await bot.send("installation", payload)
    await bot.settle()
    found = await read(bot, "/api/records/installation/-/-/99", headers=ADMIN)
    assert found["account_login"] == "octo"


@pytest.mark.logic
@pytest.mark.parametrize(
    "path",
    [
        f"/api/records/nothing/{UPSTREAM}",
        f"/api/records/merge_state/{UPSTREAM}/1",
        f"/api/records/issue/{UPSTREAM}",
        f"/api/records/pull_request/{UPSTREAM}/77",
        f"/api/records/pull_request/{UPSTREAM}/{'9' * 40}",
        f"/api/records/push/{UPSTREAM}/{uuid.UUID(int=0)}",
    ],
)
async def test_an_unknown_table_or_row_is_404_and_names_the_tables(bot, pull, path):
    status, body = await bot.get(path)
    assert (status, body["ok"], body["error"]) == (404, False, "not_found")
    assert all(table in body["detail"] for table in TYPES)


@pytest.mark.logic
@pytest.mark.parametrize(
    "path",
    [
        "limit=0", "limit=501", "limit=many", "before=x", "before=1.2", "before=%00", "before=" + "9" * 30,
    ],
)  # fmt: skip
async def test_a_wrong_page_of_records_is_refused(bot, pull, path):
    status, body = await bot.get(f"/api/records/pull_request/{UPSTREAM}?{path}")
    assert (status, body["error"]) == (400, "invalid_parameter")


@pytest.mark.logic
@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/oot/pulls/no%00/body/1", 400),
        ("/api/records/issue/no%00/body/1", 400),
        (f"/api/records/pull_request/{UPSTREAM}/x%00", 400),
        ("/oot/a/b%FF", 404),
    ],
)
async def test_a_name_that_can_be_none_is_refused(bot, path, status):
    assert (await bot.get(path))[0] == status
