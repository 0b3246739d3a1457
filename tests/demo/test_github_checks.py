"""Check runs, comments, files and permissions of the simulated GitHub."""

from __future__ import annotations

import json

import pytest

from tests.demo.app_client import (
    ANNOTATION,
    BUTTON,
    KEY,
    OUTPUT,
    UPSTREAM,
    check_run_body,
    webhook_receiver,
)


async def test_only_the_app_that_created_a_check_run_may_update_it(client, pull):
    _, made, _ = await client.call("POST", f"/repos/{UPSTREAM}/check-runs", check_run_body(pull))
    other = client.github.register_app(
        webhook_url=None, webhook_secret="s", slug="other", private_key_pem=KEY
    )
    client.github.install(UPSTREAM, other)
    path, done = f"/repos/{UPSTREAM}/check-runs/{made['id']}", {"conclusion": "success"}
    assert (await client.call("PATCH", path, done, token=await client.token(other)))[0] == 403
    status, body, _ = await client.call("PATCH", path, done)
    assert (status, body["status"], body["conclusion"]) == (200, "completed", "success")
    assert client.github.check_runs(UPSTREAM, pull.head_sha)[0].conclusion == "success"


async def test_pull_requests_from_forks_are_not_listed_in_check_runs(client, pull):
    own = await client.github.open_pull(UPSTREAM, from_fork=False)
    named = []
    for each in (pull, own):
        _, made, _ = await client.call("POST", f"/repos/{UPSTREAM}/check-runs", check_run_body(each))
        named.append([one["number"] for one in made["pull_requests"]])
    assert named == [[], [own.number]]


async def test_annotations_are_added_and_listed(client, pull):
    noted = OUTPUT | {"annotations": [ANNOTATION] * 50}
    _, made, _ = await client.call(
        "POST", f"/repos/{UPSTREAM}/check-runs", check_run_body(pull, output=noted)
    )
    path = f"/repos/{UPSTREAM}/check-runs/{made['id']}"
    more = {"output": {"summary": "more", "annotations": [ANNOTATION]}}
    _, body, _ = await client.call("PATCH", path, more)
    assert body["output"]["annotations_count"] == 51
    assert body["output"]["title"] == "t"
    _, rows, _ = await client.call("GET", f"{path}/annotations?per_page=100")
    assert len(rows) == 51


async def test_the_newest_run_of_a_name_is_listed_unless_all_are_requested(client, pull):
    path = f"/repos/{UPSTREAM}/check-runs"
    first = (await client.call("POST", path, check_run_body(pull)))[1]["id"]
    second = (await client.call("POST", path, check_run_body(pull)))[1]["id"]
    listed = f"/repos/{UPSTREAM}/commits/{pull.head_sha}/check-runs"
    for query, wanted in {
        "": [second],
        "?filter=all": [second, first],
        "?check_name=oot+%2F+npu": [second],
        "?check_name=other": [],
        f"?app_id={client.app.app_id}": [second],
        "?app_id=1": [],
        "?filter=all&per_page=1&page=2": [first],
    }.items():
        _, body, _ = await client.call("GET", listed + query)
        assert [row["id"] for row in body["check_runs"]] == wanted, query


async def test_all_apps_receive_check_runs_but_only_their_owner_its_buttons(client, pull):
    async with webhook_receiver() as other_receiver:
        other = client.github.register_app(
            webhook_url=other_receiver.url, webhook_secret="s", slug="other", private_key_pem=KEY
        )
        client.github.install(UPSTREAM, other)
        body = check_run_body(pull, conclusion="failure", actions=[BUTTON])
        _, made, _ = await client.call("POST", f"/repos/{UPSTREAM}/check-runs", body)
        await client.github.settled()
        await client.github.rerequest(made["id"])
        await client.github.request_action(made["id"], "again")
        await client.github.rerequest_suite(UPSTREAM, pull.head_sha, client.app)
    both = ["check_run.created", "check_run.completed", "check_suite.completed"]
    assert other_receiver.events == both
    assert client.receiver.events[1:] == [
        *both,
        "check_run.rerequested",
        "check_run.requested_action",
        "check_suite.rerequested",
    ]
    requested = json.loads(client.receiver.received[-3][1])
    assert requested["check_run"]["status"] == "completed"
    assert requested["check_run"]["check_suite"]["status"] == "queued"
    with pytest.raises(ValueError, match="no button"):
        await client.github.request_action(made["id"], "dance")


async def test_reruns_need_checks_write(client, pull):
    body = check_run_body(pull, conclusion="failure")
    _, made, _ = await client.call("POST", f"/repos/{UPSTREAM}/check-runs", body)
    await client.github.settled()
    count = len(client.receiver.received)
    client.installation().permissions["checks"] = "read"
    await client.github.rerequest(made["id"])
    assert len(client.receiver.received) == count


async def test_comments_name_their_author(client, pull):
    await client.github.comment(pull, "/oot help", by="octocat")
    path = f"/repos/{UPSTREAM}/issues/{pull.number}/comments"
    _, mine, _ = await client.call("POST", path, {"body": "<!-- ours -->"})
    _, rows, _ = await client.call("GET", path)
    assert [row["user"]["login"] for row in rows] == ["octocat", "ootbot[bot]"]
    assert [row["user"]["type"] for row in rows] == ["User", "Bot"]
    assert rows[0]["performed_via_github_app"] is None
    assert rows[1]["performed_via_github_app"]["id"] == client.app.app_id
    one = f"/repos/{UPSTREAM}/issues/comments/{mine['id']}"
    assert (await client.call("PATCH", one, {"body": "other"}))[1]["body"] == "other"
    assert (await client.call("DELETE", one))[0] == 204
    assert (await client.call("GET", one))[0] == 404
    await client.github.settled()
    events = [each for each in client.receiver.events if each.startswith("issue_comment")]
    assert events == ["issue_comment.created"] * 2 + ["issue_comment.edited", "issue_comment.deleted"]


async def test_repeating_a_reaction_changes_nothing(client, pull):
    comment = await client.github.comment(pull, "/oot rerun", by="octocat")
    path = f"/repos/{UPSTREAM}/issues/comments/{comment.id}/reactions"
    statuses = [(await client.call("POST", path, {"content": "eyes"}))[0] for _ in range(2)]
    assert statuses == [201, 200]
    assert (await client.call("POST", path, {"content": "shrug"}))[0] == 422
    assert [each.content for each in client.github.reactions(comment)] == ["eyes"]


async def test_files_come_as_json_or_raw_and_as_304_when_unchanged(client):
    client.github.set_file(UPSTREAM, ".github/oot.yml", "L1: []\n")
    path = f"/repos/{UPSTREAM}/contents/.github/oot.yml"
    _, body, headers = await client.call("GET", path)
    assert (body["encoding"], body["content"].strip()) == ("base64", "TDE6IFtdCg==")
    raw = {"Accept": "application/vnd.github.raw+json"}
    assert (await client.call("GET", path, headers=raw))[1] == b"L1: []\n"
    same = {"If-None-Match": headers["ETag"]}
    assert (await client.call("GET", path, headers=same))[0] == 304
    client.github.set_file(UPSTREAM, ".github/oot.yml", "L2: []\n")
    assert (await client.call("GET", path, headers=same))[0] == 200
    old = (await client.call("GET", f"/repos/{UPSTREAM}/commits"))[1][1]["sha"]
    assert (await client.call("GET", f"{path}?ref={old}"))[1]["content"].strip() == "TDE6IFtdCg=="


async def test_a_comparison_has_the_merge_base(client, pull):
    await client.github.push(UPSTREAM, files={"a.py": "1"})
    path = f"/repos/{UPSTREAM}/compare/main...{pull.head_sha}"
    _, body, _ = await client.call("GET", path)
    assert body["merge_base_commit"]["sha"] == pull.base_sha
    assert (body["status"], body["ahead_by"], body["behind_by"]) == ("diverged", 1, 1)


async def test_permissions_are_those_set_on_the_repository(client):
    client.github.set_permission(UPSTREAM, "bob", "write")
    for login, role in {"alice": "admin", "BOB": "write", "carol": "read"}.items():
        path = f"/repos/{UPSTREAM}/collaborators/{login}/permission"
        assert (await client.call("GET", path))[1]["permission"] == role
