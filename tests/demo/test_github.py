"""The simulated GitHub: workflow runs, check runs, comments, what it refuses, how it pages."""

from __future__ import annotations

import json
import time

import pytest

from tests.demo.app_client import (
    ANNOTATION,
    BUTTON,
    HOUR,
    KEY,
    OUTPUT,
    UPSTREAM,
    check_run_body,
    webhook_receiver,
)

# Workflow runs and dispatches of the simulated GitHub.


async def test_on_dispatch_is_called_after_the_response(client):
    github, dispatches = client.github, []

    async def backend(dispatch):
        dispatches.append((dispatch.repo.full_name, dispatch.event_type, dispatch.client_payload))
        run = await github.start_run(dispatch.repo)
        job = await github.start_job(run, "test", labels=["npu"])
        await github.finish_job(job, "failure")
        await github.finish_run(run, "failure")

    github.on_dispatch = backend
    body = {"event_type": "pull_request", "client_payload": {"delivery_id": "1"}}
    assert (await client.call("POST", f"/repos/{UPSTREAM}/dispatches", body))[0] == 204
    await github.settled()
    assert dispatches == [(UPSTREAM, "pull_request", {"delivery_id": "1"})]
    assert client.receiver.events == [
        "workflow_run.requested",
        "workflow_run.in_progress",
        "workflow_job.queued",
        "check_run.created",
        "workflow_job.in_progress",
        "workflow_job.completed",
        "check_run.completed",
        "workflow_run.completed",
        "check_suite.completed",
    ]
    _, body, _ = await client.call("GET", f"/repos/{UPSTREAM}/actions/runs?event=repository_dispatch")
    run = body["workflow_runs"][0]
    assert (body["total_count"], run["conclusion"], run["run_attempt"]) == (1, "failure", 1)


async def test_an_error_in_on_dispatch_is_raised(client):
    async def backend(dispatch):
        raise LookupError(dispatch.event_type)

    client.github.on_dispatch = backend
    await client.call("POST", f"/repos/{UPSTREAM}/dispatches", {"event_type": "go"})
    with pytest.raises(LookupError, match="go"):
        await client.github.settled()


async def test_completed_runs_can_be_rerun_for_thirty_days(client):
    github, reruns = client.github, []

    async def backend(run, failed_only):
        reruns.append((run.id, failed_only))

    github.on_rerun = backend
    run = await github.start_run(UPSTREAM)
    job = await github.start_job(run, "test")
    path = f"/repos/{UPSTREAM}/actions/runs/{run.id}"
    assert (await client.call("POST", f"{path}/rerun"))[0] == 403
    await github.finish_job(job, "success")
    await github.finish_run(run, "success")
    assert (await client.call("POST", f"{path}/cancel"))[0] == 409
    assert (await client.call("POST", f"{path}/rerun-failed-jobs"))[0] == 403
    assert (await client.call("POST", f"{path}/rerun"))[0] == 201
    again = await github.start_job(run, "test")
    assert (await client.call("GET", path))[1]["run_attempt"] == 2
    assert (await client.call("GET", f"{path}/attempts/1"))[1]["conclusion"] == "success"
    assert (await client.call("GET", f"{path}/attempts/3"))[0] == 404
    latest, every = [
        [row["id"] for row in (await client.call("GET", f"{path}/jobs{query}"))[1]["jobs"]]
        for query in ("", "?filter=all")
    ]
    assert (latest, every) == ([again.id], [job.id, again.id])
    assert (await client.call("POST", f"{path}/cancel"))[0] == 202
    await github.settled()
    assert (run.conclusion, again.conclusion) == ("cancelled", "cancelled")
    assert (await client.call("POST", f"{path}/rerun-failed-jobs"))[0] == 201
    await github.settled()
    assert reruns == [(run.id, False), (run.id, True)]
    await github.finish_run(run, "failure")
    client.clock.advance(31 * 24 * HOUR)
    assert (await client.call("POST", f"{path}/rerun"))[0] == 403


async def test_one_job_of_a_run_can_be_run_again(client):
    github = client.github
    run = await github.start_run(UPSTREAM)
    job = await github.start_job(run, "test")
    path = f"/repos/{UPSTREAM}/actions/jobs/{job.id}/rerun"
    assert (await client.call("POST", path, {}))[0] == 403, "it runs"
    await github.finish_job(job, "failure")
    await github.finish_run(run, "failure")
    assert (await client.call("POST", path, {}))[0] == 201
    await github.settled()
    assert run.run_attempt == 2
    assert (await client.call("POST", f"/repos/{UPSTREAM}/actions/jobs/7/rerun", {}))[0] == 404


async def test_runs_are_found_by_their_date_of_creation(client):
    run = await client.github.start_run(UPSTREAM)
    day = time.strftime("%Y-%m-%d", time.gmtime(run.created_at / 1000))
    for wanted, count in {day: 1, f">={day}": 1, f">{day}": 0, f"{day}..*": 1, "<2020-01-01": 0}.items():
        params = f"/repos/{UPSTREAM}/actions/runs?created={wanted}"
        assert (await client.call("GET", params))[1]["total_count"] == count, wanted
    bad = f"/repos/{UPSTREAM}/actions/runs?created=soon"
    assert (await client.call("GET", bad))[0] == 422


async def test_workflow_dispatches_return_their_run_on_request(client):
    path = f"/repos/{UPSTREAM}/actions/workflows/ci.yml/dispatches"
    many = {"ref": "main", "inputs": {f"i{number}": "x" for number in range(26)}}
    assert (await client.call("POST", path, {"ref": "main"}))[0] == 204
    assert (await client.call("POST", path, many))[0] == 422
    assert (await client.call("POST", path, {"ref": "nowhere"}))[0] == 422
    assert (await client.call("POST", path.replace("ci.yml", "no.yml"), {"ref": "main"}))[0] == 404
    asked = {"ref": "main", "return_run_details": True, "inputs": {"a": "b"}}
    status, body, _ = await client.call("POST", path, asked)
    assert status == 200
    assert client.github.dispatches[-1].run.id == body["workflow_run_id"]
    assert client.github.dispatches[-1].client_payload == {"a": "b"}


# Check runs, comments, files and permissions of the simulated GitHub.


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


# Validation of requests by the simulated GitHub, rate limits and paging.


CHECK_RUNS = {
    "name and head are enough": ({}, 201),
    "no name": ({"name": None}, 422),
    "no head": ({"head_sha": None}, 422),
    "an unknown head": ({"head_sha": "f" * 40}, 422),
    "completed without conclusion": ({"status": "completed"}, 422),
    "completed_at without conclusion": ({"completed_at": "2026-01-01T00:00:00Z"}, 422),
    "conclusion alone completes": ({"conclusion": "success"}, 201),
    "stale is GitHub's own": ({"conclusion": "stale"}, 422),
    "startup_failure is for suites": ({"conclusion": "startup_failure"}, 422),
    "waiting is for Actions": ({"status": "waiting"}, 422),
    "unknown status": ({"status": "done"}, 422),
    "output without title": ({"output": {"summary": "s"}}, 422),
    "output without summary": ({"output": {"title": "t"}}, 422),
    "summary of 65,535 bytes": ({"output": {"title": "t", "summary": "x" * 65_535}}, 201),
    "summary of 65,536 bytes": ({"output": {"title": "t", "summary": "x" * 65_536}}, 422),
    "summary of few characters but too many bytes": (
        {"output": {"title": "t", "summary": "ü" * 32_768}},
        422,
    ),
    "text of 65,536 bytes": ({"output": OUTPUT | {"text": "x" * 65_536}}, 422),
    "50 annotations": ({"output": OUTPUT | {"annotations": [ANNOTATION] * 50}}, 201),
    "51 annotations": ({"output": OUTPUT | {"annotations": [ANNOTATION] * 51}}, 422),
    "an annotation without message": (
        {"output": OUTPUT | {"annotations": [ANNOTATION | {"message": ""}]}},
        422,
    ),
    "columns over several lines": (
        {"output": OUTPUT | {"annotations": [ANNOTATION | {"end_line": 2, "start_column": 1}]}},
        422,
    ),
    "an unknown annotation level": (
        {"output": OUTPUT | {"annotations": [ANNOTATION | {"annotation_level": "error"}]}},
        422,
    ),
    "3 buttons": ({"actions": [BUTTON] * 3}, 201),
    "4 buttons": ({"actions": [BUTTON] * 4}, 422),
    "label of 21 characters": ({"actions": [BUTTON | {"label": "x" * 21}]}, 422),
    "description of 41 characters": ({"actions": [BUTTON | {"description": "x" * 41}]}, 422),
    "identifier of 21 characters": ({"actions": [BUTTON | {"identifier": "x" * 21}]}, 422),
    "a button without description": ({"actions": [{"label": "a", "identifier": "b"}]}, 422),
    "details_url of another scheme": ({"details_url": "javascript:alert(1)"}, 422),
    "an invalid time": ({"started_at": "yesterday"}, 422),
}


@pytest.mark.parametrize(("body", "status"), CHECK_RUNS.values(), ids=CHECK_RUNS)
async def test_check_runs_are_validated_as_by_github(client, pull, body, status):
    path = f"/repos/{UPSTREAM}/check-runs"
    got, answer, _ = await client.call("POST", path, check_run_body(pull, **body))
    assert got == status, answer


LARGE = 65_535 - len('{"k":""}')


DISPATCHES = {
    "smallest": ({"event_type": "go"}, 204),
    "no event_type": ({"client_payload": {}}, 422),
    "event_type of 100": ({"event_type": "x" * 100}, 204),
    "event_type of 101": ({"event_type": "x" * 101}, 422),
    "10 keys": ({"event_type": "go", "client_payload": dict.fromkeys("abcdefghij", 1)}, 204),
    "11 keys": ({"event_type": "go", "client_payload": dict.fromkeys("abcdefghijk", 1)}, 422),
    "65,535 characters": ({"event_type": "go", "client_payload": {"k": "x" * LARGE}}, 204),
    "65,536 characters": ({"event_type": "go", "client_payload": {"k": "x" * (LARGE + 1)}}, 422),
    "a list": ({"event_type": "go", "client_payload": [1]}, 422),
}


@pytest.mark.parametrize(("body", "status"), DISPATCHES.values(), ids=DISPATCHES)
async def test_dispatches_are_validated_as_by_github(client, body, status):
    got, answer, _ = await client.call("POST", f"/repos/{UPSTREAM}/dispatches", body)
    assert got == status, answer
    assert len(client.github.dispatches) == (1 if status == 204 else 0)


COMMENTS = {
    "a word": ("hello", 201), "nothing": ("", 422), "blanks": (" \n", 422), "no text": (None, 422),
    "65,536 characters": ("x" * 65_536, 201), "65,537 characters": ("x" * 65_537, 422),
    "65,536 characters of four bytes": ("😀" * 65_536, 201),
}  # fmt: skip


@pytest.mark.parametrize(("text", "status"), COMMENTS.values(), ids=COMMENTS)
async def test_comments_are_validated_as_by_github(client, pull, text, status):
    path = f"/repos/{UPSTREAM}/issues/{pull.number}/comments"
    got, answer, _ = await client.call("POST", path, {"body": text})
    assert got == status, answer


@pytest.mark.parametrize(
    ("ref", "sha", "status"),
    [
        ("refs/tags/ciflow/trunk/1", None, 201),
        ("refs/tags/known", None, 422),
        ("refs/tags/other", "b" * 40, 422),
        ("ciflow/trunk/1", None, 422),
    ],
)
async def test_tags_are_validated_as_by_github(client, ref, sha, status):
    head = await client.github.push(UPSTREAM, "refs/tags/known")
    code, body, _ = await client.call("POST", f"/repos/{UPSTREAM}/git/refs", {"ref": ref, "sha": sha or head})
    assert code == status
    assert status != 201 or (body["ref"], body["object"]["sha"]) == (ref, head)


async def test_requests_without_a_user_agent_are_refused(client):
    headers = {"Authorization": f"Bearer {client.jwt()}"}
    skipped = ["User-Agent"]
    async with client.session.get(
        f"{client.github.api_url}/app", headers=headers, skip_auto_headers=skipped
    ) as answer:
        assert answer.status == 403


async def test_every_response_has_the_remaining_calls_and_a_304_is_free(client):
    token = await client.token()
    _, _, first = await client.call("GET", f"/repos/{UPSTREAM}", token=token)
    same = {"If-None-Match": first["ETag"]}
    status, _, free = await client.call("GET", f"/repos/{UPSTREAM}", token=token, headers=same)
    _, _, second = await client.call("GET", f"/repos/{UPSTREAM}", token=token)
    left = [int(each["X-RateLimit-Remaining"]) for each in (first, free, second)]
    assert status == 304
    assert left == [4_999, 4_999, 4_998]
    client.github.rate_limit.per_hour = 2
    status, _, spent = await client.call("GET", f"/repos/{UPSTREAM}", token=token)
    assert (status, spent["X-RateLimit-Remaining"]) == (403, "0")
    client.clock.advance(HOUR)
    assert (await client.call("GET", f"/repos/{UPSTREAM}"))[0] == 200


async def test_lists_are_paged_by_links(client, pull):
    for number in range(5):
        await client.github.comment(pull, f"comment {number}", by="octocat")
    token = await client.token()
    path, seen = f"/repos/{UPSTREAM}/issues/{pull.number}/comments?per_page=2", []
    while path:
        _, rows, headers = await client.call("GET", path, token=token)
        seen += [row["body"] for row in rows]
        links = dict(reversed(part.split("; ")) for part in headers.get("Link", "").split(", ") if part)
        path = links.get('rel="next"', "").strip("<>")
    assert seen == [f"comment {number}" for number in range(5)]
    everything = f"/repos/{UPSTREAM}/issues/{pull.number}/comments?per_page=500"
    assert len((await client.call("GET", everything, token=token))[1]) == 5
