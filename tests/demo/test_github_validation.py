"""Validation of requests by the simulated GitHub, rate limits and paging."""

from __future__ import annotations

import pytest

from tests.demo.app_client import (
    ANNOTATION,
    BUTTON,
    HOUR,
    OUTPUT,
    UPSTREAM,
    check_run_body,
)

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
    "a word": ("hello", 201),
    "nothing": ("", 422),
    "blanks": (" \n", 422),
    "no text": (None, 422),
    "65,536 characters": ("x" * 65_536, 201),
    "65,537 characters": ("x" * 65_537, 422),
    "65,536 characters of four bytes": ("😀" * 65_536, 201),
}


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
