"""Do check runs, comments and files of the simulated GitHub behave as GitHub's?"""

from __future__ import annotations

import json

import pytest

from tests.demo.desk import (
    BUTTON,
    KEY,
    NOTE,
    OUTPUT,
    UPSTREAM,
    listening,
    run_of,
)


async def test_only_the_app_that_made_a_check_run_changes_it(desk, pull):
    _, made, _ = await desk.call("POST", f"/repos/{UPSTREAM}/check-runs", run_of(pull))
    other = desk.github.register_app(webhook_url=None, webhook_secret="s", slug="other", private_key_pem=KEY)
    desk.github.install(UPSTREAM, other)
    path, done = f"/repos/{UPSTREAM}/check-runs/{made['id']}", {"conclusion": "success"}
    assert (await desk.call("PATCH", path, done, token=await desk.token(other)))[0] == 403
    status, body, _ = await desk.call("PATCH", path, done)
    assert (status, body["status"], body["conclusion"]) == (200, "completed", "success")
    assert desk.github.check_runs(UPSTREAM, pull.head_sha)[0].conclusion == "success"


async def test_pull_requests_from_forks_are_not_named_in_check_runs(desk, pull):
    own = await desk.github.open_pull(UPSTREAM, from_fork=False)
    named = []
    for each in (pull, own):
        _, made, _ = await desk.call("POST", f"/repos/{UPSTREAM}/check-runs", run_of(each))
        named.append([one["number"] for one in made["pull_requests"]])
    assert named == [[], [own.number]]


async def test_annotations_are_added_and_listed(desk, pull):
    noted = OUTPUT | {"annotations": [NOTE] * 50}
    _, made, _ = await desk.call("POST", f"/repos/{UPSTREAM}/check-runs", run_of(pull, output=noted))
    path = f"/repos/{UPSTREAM}/check-runs/{made['id']}"
    more = {"output": {"summary": "more", "annotations": [NOTE]}}
    _, body, _ = await desk.call("PATCH", path, more)
    assert body["output"]["annotations_count"] == 51
    assert body["output"]["title"] == "t"
    _, rows, _ = await desk.call("GET", f"{path}/annotations?per_page=100")
    assert len(rows) == 51


async def test_the_newest_run_of_a_name_is_listed_unless_all_are_asked_for(desk, pull):
    path = f"/repos/{UPSTREAM}/check-runs"
    first = (await desk.call("POST", path, run_of(pull)))[1]["id"]
    second = (await desk.call("POST", path, run_of(pull)))[1]["id"]
    listed = f"/repos/{UPSTREAM}/commits/{pull.head_sha}/check-runs"
    for query, wanted in {
        "": [second],
        "?filter=all": [second, first],
        "?check_name=oot+%2F+npu": [second],
        "?check_name=other": [],
        f"?app_id={desk.app.app_id}": [second],
        "?app_id=1": [],
        "?filter=all&per_page=1&page=2": [first],
    }.items():
        _, body, _ = await desk.call("GET", listed + query)
        assert [row["id"] for row in body["check_runs"]] == wanted, query


async def test_check_runs_are_told_to_all_and_buttons_to_their_owner_only(desk, pull):
    async with listening() as door:
        other = desk.github.register_app(
            webhook_url=door.url, webhook_secret="s", slug="other", private_key_pem=KEY
        )
        desk.github.install(UPSTREAM, other)
        body = run_of(pull, conclusion="failure", actions=[BUTTON])
        _, made, _ = await desk.call("POST", f"/repos/{UPSTREAM}/check-runs", body)
        await desk.github.settled()
        await desk.github.rerequest(made["id"])
        await desk.github.request_action(made["id"], "again")
        await desk.github.rerequest_suite(UPSTREAM, pull.head_sha, desk.app)
    both = ["check_run.created", "check_run.completed", "check_suite.completed"]
    assert door.events == both
    assert desk.listener.events[1:] == [
        *both,
        "check_run.rerequested",
        "check_run.requested_action",
        "check_suite.rerequested",
    ]
    asked = json.loads(desk.listener.got[-3][1])
    assert asked["check_run"]["status"] == "completed"
    assert asked["check_run"]["check_suite"]["status"] == "queued"
    with pytest.raises(ValueError, match="no button"):
        await desk.github.request_action(made["id"], "dance")


async def test_reruns_need_checks_write(desk, pull):
    body = run_of(pull, conclusion="failure")
    _, made, _ = await desk.call("POST", f"/repos/{UPSTREAM}/check-runs", body)
    await desk.github.settled()
    told = len(desk.listener.got)
    desk.installation().permissions["checks"] = "read"
    await desk.github.rerequest(made["id"])
    assert len(desk.listener.got) == told


async def test_comments_tell_who_wrote_them(desk, pull):
    await desk.github.comment(pull, "/oot help", by="octocat")
    path = f"/repos/{UPSTREAM}/issues/{pull.number}/comments"
    _, mine, _ = await desk.call("POST", path, {"body": "<!-- ours -->"})
    _, rows, _ = await desk.call("GET", path)
    assert [row["user"]["login"] for row in rows] == ["octocat", "ootbot[bot]"]
    assert [row["user"]["type"] for row in rows] == ["User", "Bot"]
    assert rows[0]["performed_via_github_app"] is None
    assert rows[1]["performed_via_github_app"]["id"] == desk.app.app_id
    one = f"/repos/{UPSTREAM}/issues/comments/{mine['id']}"
    assert (await desk.call("PATCH", one, {"body": "other"}))[1]["body"] == "other"
    assert (await desk.call("DELETE", one))[0] == 204
    assert (await desk.call("GET", one))[0] == 404
    await desk.github.settled()
    told = [each for each in desk.listener.events if each.startswith("issue_comment")]
    assert told == ["issue_comment.created"] * 2 + ["issue_comment.edited", "issue_comment.deleted"]


async def test_a_reaction_twice_is_one(desk, pull):
    comment = await desk.github.comment(pull, "/oot rerun", by="octocat")
    path = f"/repos/{UPSTREAM}/issues/comments/{comment.id}/reactions"
    statuses = [(await desk.call("POST", path, {"content": "eyes"}))[0] for _ in range(2)]
    assert statuses == [201, 200]
    assert (await desk.call("POST", path, {"content": "shrug"}))[0] == 422
    assert [each.content for each in desk.github.reactions(comment)] == ["eyes"]


async def test_files_come_as_json_raw_and_not_at_all_when_unchanged(desk):
    desk.github.set_file(UPSTREAM, ".github/oot.yml", "L1: []\n")
    path = f"/repos/{UPSTREAM}/contents/.github/oot.yml"
    _, body, headers = await desk.call("GET", path)
    assert (body["encoding"], body["content"].strip()) == ("base64", "TDE6IFtdCg==")
    raw = {"Accept": "application/vnd.github.raw+json"}
    assert (await desk.call("GET", path, headers=raw))[1] == b"L1: []\n"
    same = {"If-None-Match": headers["ETag"]}
    assert (await desk.call("GET", path, headers=same))[0] == 304
    desk.github.set_file(UPSTREAM, ".github/oot.yml", "L2: []\n")
    assert (await desk.call("GET", path, headers=same))[0] == 200
    old = (await desk.call("GET", f"/repos/{UPSTREAM}/commits"))[1][1]["sha"]
    assert (await desk.call("GET", f"{path}?ref={old}"))[1]["content"].strip() == "TDE6IFtdCg=="


async def test_a_comparison_knows_the_merge_base(desk, pull):
    await desk.github.push(UPSTREAM, files={"a.py": "1"})
    path = f"/repos/{UPSTREAM}/compare/main...{pull.head_sha}"
    _, body, _ = await desk.call("GET", path)
    assert body["merge_base_commit"]["sha"] == pull.base_sha
    assert (body["status"], body["ahead_by"], body["behind_by"]) == ("diverged", 1, 1)


async def test_the_role_of_a_person_is_what_the_repository_says(desk):
    desk.github.set_permission(UPSTREAM, "bob", "write")
    for login, role in {"alice": "admin", "BOB": "write", "carol": "read"}.items():
        path = f"/repos/{UPSTREAM}/collaborators/{login}/permission"
        assert (await desk.call("GET", path))[1]["permission"] == role
