"""The JSON of the health page, pull requests, jobs, the allowlist, and records: rows, pages of rows, their history."""

import html
import re
import uuid

import pytest

from bot.core.json_fields import iso_time
from bot.ingest.tables import TYPES
from tests.harness import L1, L2, L3, L4, UPSTREAM
from tests.pages.reading import ADMIN, read, said_to_be

COLUMNS = {
    "status", "conclusion", "downstream_repo", "upstream_repo", "pr_number", "head_sha", "delivery_id",
    "workflow_run_url", "workflow_name", "job_name", "check_run_id", "run_id", "run_attempt", "queue_time",
    "execution_time", "started_at", "completed_at", "total_tests", "passed_tests", "failed_tests", "skipped_tests",
    "failed_tests_json", "artifact_url", "environment", "reported_started_at", "reported_completed_at",
    "triage_verdict", "downstream_repo_level", "event_type",
    "source", "flags", "received_at", "reporter_check_run_id",
}  # fmt: skip


@pytest.mark.logic
async def test_the_summary_holds_every_backend_with_its_numbers(bot, pull):
    await bot.report(bot.dispatch(L4), status="in_progress")
    bot.clock.advance(90)
    await bot.report(bot.dispatch(L4))
    body = await read(bot, "/api/oot/summary?days=7")
    assert (body["ok"], body["days"]) == (True, 7)
    assert [one["repo"] for one in body["backends"]] == [L4, L3, L2, L1]
    tpu = body["backends"][0]
    assert (tpu["level"], tpu["device"], tpu["listed"], tpu["grade"]) == (4, "tpu", True, "green")
    assert (tpu["runs"], tpu["success"], tpu["pass_rate"], tpu["median_execution_time"]) == (1, 1, 1.0, 90.0)
    assert tpu["last_at"].endswith("Z")
    assert body["backends"][1]["pass_rate"] is None


@pytest.mark.logic
async def test_what_is_older_than_the_window_is_not_counted(bot, pull):
    await bot.report(bot.dispatch(L4))
    bot.clock.advance(2 * 86_400)
    assert (await read(bot, f"/api/oot/backends/{L4}?days=1"))["backend"]["runs"] == 0
    body = await read(bot, f"/api/oot/backends/{L4}?days=3")
    assert (body["backend"]["runs"], len(body["jobs"])) == (1, 1)


@pytest.mark.logic
async def test_a_silent_dispatch_lowers_the_pass_rate(bot, pull):
    await bot.wait(2 * 86_400)
    tpu = (await read(bot, f"/api/oot/backends/{L4}"))["backend"]
    assert (tpu["never_started"], tpu["pass_rate"]) == (1, 0.0)


@pytest.mark.logic
async def test_job_rows_are_flat_and_hold_exactly_the_agreed_columns(bot, pull):
    await bot.report(bot.dispatch(L4), status="in_progress", check_run_id=123)
    bot.clock.advance(60)
    await bot.report(bot.dispatch(L4), conclusion="failure", test_results={"passed": 1, "failed": 1, "skipped": 0},
                     failed_tests=[{"name": "test_add"}])  # fmt: skip
    (row,) = (await read(bot, f"/api/oot/backends/{L4}"))["jobs"]
    assert set(row) == COLUMNS
    assert row == (await read(bot, f"/api/oot/pulls/{UPSTREAM}/{pull.number}"))["jobs"][0]
    assert (row["run_id"], row["check_run_id"], row["pr_number"]) == ("900", "123", pull.number)
    assert row["failed_tests_json"][0]["name"] == "test_add"
    now = bot.clock.now()
    assert (row["started_at"], row["completed_at"]) == (iso_time(now - 60_000), iso_time(now))


@pytest.mark.logic
async def test_a_pull_request_has_heads_backends_and_jobs(bot, github, pull):
    await bot.report(bot.dispatch(L4), conclusion="failure")
    old, new = pull.head_sha, await github.push_commit(pull)
    await bot.settle()
    path = f"/api/oot/pulls/{UPSTREAM}/{pull.number}"
    body = await read(bot, path)
    assert body["pull"]["title"] == "Make it faster"
    assert (body["pull"]["state"], body["pull"]["user_login"], body["pull"]["head_sha"]) == (
        "open",
        "octocat",
        new,
    )
    assert [(head["sha"], head["current"]) for head in body["heads"]] == [(new, True), (old, False)]
    assert body["heads"][1]["backends"] == {"queued": 2, "failure": 1}
    assert {one["repo"]: one["state"] for one in body["backends"]} == {
        L4: "queued",
        L3: "queued",
        L2: "queued",
    }
    assert [row["head_sha"] for row in body["jobs"]] == [old]
    assert (await read(bot, f"{path}?sha={new}"))["jobs"] == []
    before = await read(bot, f"{path}?sha={old}")
    assert before["backends"][0]["state"] == "failure"
    assert before["backends"][0]["oncalls"] == ["dave"]
    assert len(before["jobs"]) == 1


@pytest.mark.logic
async def test_every_attempt_of_a_job_is_in_the_json(bot, pull):
    await bot.report(bot.dispatch(L4), conclusion="failure")
    await bot.report(bot.dispatch(L4), attempt=2)
    rows = (await read(bot, f"/api/oot/pulls/{UPSTREAM}/{pull.number}"))["jobs"]
    assert [(row["run_attempt"], row["conclusion"]) for row in rows] == [(1, "failure"), (2, "success")]
    assert (await read(bot, f"/api/oot/backends/{L4}"))["backend"]["runs"] == 1


@pytest.mark.logic
async def test_the_allowlist_is_told_with_what_is_wrong_with_its_newest_version(bot, tmp_path):
    body = await read(bot, "/api/oot/allowlist")
    assert [(one["repo"], one["level"], one["oncalls"]) for one in body["entries"]] == [
        (L1, 1, []),
        (L2, 2, ["alice", "bob"]),
        (L3, 3, ["carol"]),
        (L4, 4, ["dave"]),
    ]
    assert (body["newest"]["valid"], body["newest"]["errors"]) == (True, [])
    (tmp_path / "allowlist.yml").write_text("L9: [a/b]")
    bot.clock.advance(600)
    await bot.wait(600)
    body = await read(bot, "/api/oot/allowlist")
    assert len(body["entries"]) == 4
    assert body["newest"]["valid"] is False
    assert "L9" in body["newest"]["errors"][0]


async def test_nightly_periodic_and_push_reports_are_views_of_their_own(bot, github):
    path = bot.context.settings.data_dir / "allowlist.yml"
    path.write_text(f"L2: [{{repo: {L2}, events: [pull_request, push, nightly]}}]")
    await bot.wait(61)
    sha = await github.push(UPSTREAM, "main")
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    by_event = {one.event_type: one for one in github.dispatches}
    for event in ("push", "pull_request"):
        assert (await bot.report(by_event[event], job=event))[0] == 200
    said = {"status": "completed", "conclusion": "success", "name": "CI", "run_id": "900"}
    for event in ("nightly", "periodic"):
        body = {"event_type": event, "delivery_id": sha, "workflow": said | {"job_name": event}}
        headers = {"Authorization": f"Bearer {bot.issuer.mint(repository=L2, run_id='900')}"}
        assert (await bot.request("POST", "/api/oot/callback", json=body, headers=headers))[0] == 200
    await bot.settle()

    async def jobs(path):
        return {(job["job_name"], job["event_type"]) for job in (await read(bot, path))["jobs"]}

    every = {(event, event) for event in ("push", "pull_request", "nightly", "periodic")}
    assert await jobs(f"/api/oot/backends/{L2}") == every
    on_sha = {(event, event) for event in ("push", "nightly", "periodic")}
    for name in (sha, sha[:7], sha.upper()):
        assert await jobs(f"/api/oot/commits/{UPSTREAM}/{name}") == on_sha
    assert await jobs(f"/api/oot/commits/{UPSTREAM}/{pull.head_sha}") == {("pull_request", "pull_request")}
    for event, _ in every:
        assert await jobs(f"/api/oot/backends/{L2}?event={event}") == {(event, event)}
    assert await jobs(f"/api/oot/commits/{UPSTREAM}/{sha}?event=nightly") == {("nightly", "nightly")}
    several = "nightly,periodic"
    assert await jobs(f"/api/oot/backends/{L2}?event={several}") == {(one, one) for one in several.split(",")}
    for days in (1, 30):
        for asked, runs in (("", 4), ("&event=push", 1), (f"&event={several}", 2)):
            (one,) = (await read(bot, f"/api/oot/summary?days={days}{asked}"))["backends"]
            assert one["runs"] == runs
    _, page = await bot.get(f"/oot?event={several}")
    (address,) = re.findall(r'<a href="([^"]+)">This page as JSON</a>', page)
    assert (await read(bot, html.unescape(address)))["backends"][0]["runs"] == 2
    _, page = await bot.get(f"/oot/{L2}?tab=nightly")
    (address,) = re.findall(r'<a href="([^"]+)">This page as JSON</a>', page)
    assert await jobs(html.unescape(address)) == {(one, one) for one in several.split(",")}
    assert [one["repo"] for one in (await read(bot, "/api/oot/levels?q=l2"))["backends"]] == [L2]
    assert (await read(bot, "/api/oot/levels?q=other"))["backends"] == []
    for path, expected in (
        (f"/api/oot/commits/{UPSTREAM}/{'f' * 40}", (404, "unknown_commit")),
        (f"/api/oot/commits/other/repo/{sha}", (404, "unknown_commit")),
        (f"/api/oot/commits/{UPSTREAM}/main", (400, "invalid_parameter")),
        (f"/api/oot/backends/{L2}?event=hourly", (400, "invalid_parameter")),
        ("/api/oot/summary?event=push,hourly", (400, "invalid_parameter")),
    ):
        status, body = await bot.get(path)
        assert (status, body["error"]) == expected
    await said_to_be(bot, github, private=True)
    assert (await bot.get(f"/api/oot/commits/{UPSTREAM}/{sha}"))[0] == 404


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
