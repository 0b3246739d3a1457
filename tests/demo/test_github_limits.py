"""What does the simulated GitHub take, and what does it refuse as GitHub does? Sizes, counts, words."""

from __future__ import annotations

import pytest

from tests.demo.desk import (
    BUTTON,
    HOUR,
    NOTE,
    OUTPUT,
    UPSTREAM,
    run_of,
)

CHECK_RUNS = {
    "name and head are enough": ({}, 201),
    "no name": ({"name": None}, 422),
    "no head": ({"head_sha": None}, 422),
    "a head nobody knows": ({"head_sha": "f" * 40}, 422),
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
    "50 annotations": ({"output": OUTPUT | {"annotations": [NOTE] * 50}}, 201),
    "51 annotations": ({"output": OUTPUT | {"annotations": [NOTE] * 51}}, 422),
    "an annotation without message": (
        {"output": OUTPUT | {"annotations": [NOTE | {"message": ""}]}},
        422,
    ),
    "columns over several lines": (
        {"output": OUTPUT | {"annotations": [NOTE | {"end_line": 2, "start_column": 1}]}},
        422,
    ),
    "an unknown annotation level": (
        {"output": OUTPUT | {"annotations": [NOTE | {"annotation_level": "error"}]}},
        422,
    ),
    "3 buttons": ({"actions": [BUTTON] * 3}, 201),
    "4 buttons": ({"actions": [BUTTON] * 4}, 422),
    "label of 21 characters": ({"actions": [BUTTON | {"label": "x" * 21}]}, 422),
    "description of 41 characters": ({"actions": [BUTTON | {"description": "x" * 41}]}, 422),
    "identifier of 21 characters": ({"actions": [BUTTON | {"identifier": "x" * 21}]}, 422),
    "a button without description": ({"actions": [{"label": "a", "identifier": "b"}]}, 422),
    "details_url of another scheme": ({"details_url": "javascript:alert(1)"}, 422),
    "a time that is none": ({"started_at": "yesterday"}, 422),
}


@pytest.mark.parametrize(("body", "status"), CHECK_RUNS.values(), ids=CHECK_RUNS)
async def test_check_runs_are_taken_or_refused_as_github_does(desk, pull, body, status):
    path = f"/repos/{UPSTREAM}/check-runs"
    got, answer, _ = await desk.call("POST", path, run_of(pull, **body))
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
async def test_dispatches_are_taken_or_refused_as_github_does(desk, body, status):
    got, answer, _ = await desk.call("POST", f"/repos/{UPSTREAM}/dispatches", body)
    assert got == status, answer
    assert len(desk.github.dispatches) == (1 if status == 204 else 0)


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
async def test_comments_are_taken_or_refused_as_github_does(desk, pull, text, status):
    path = f"/repos/{UPSTREAM}/issues/{pull.number}/comments"
    got, answer, _ = await desk.call("POST", path, {"body": text})
    assert got == status, answer


async def test_requests_without_a_user_agent_are_refused(desk):
    headers = {"Authorization": f"Bearer {desk.jwt()}"}
    skipped = ["User-Agent"]
    async with desk.session.get(
        f"{desk.github.api_url}/app", headers=headers, skip_auto_headers=skipped
    ) as answer:
        assert answer.status == 403


async def test_every_answer_says_how_many_calls_are_left_and_an_unchanged_one_is_free(desk):
    token = await desk.token()
    _, _, first = await desk.call("GET", f"/repos/{UPSTREAM}", token=token)
    same = {"If-None-Match": first["ETag"]}
    status, _, free = await desk.call("GET", f"/repos/{UPSTREAM}", token=token, headers=same)
    _, _, second = await desk.call("GET", f"/repos/{UPSTREAM}", token=token)
    left = [int(each["X-RateLimit-Remaining"]) for each in (first, free, second)]
    assert status == 304
    assert left == [4_999, 4_999, 4_998]
    desk.github.limits.per_hour = 2
    status, _, spent = await desk.call("GET", f"/repos/{UPSTREAM}", token=token)
    assert (status, spent["X-RateLimit-Remaining"]) == (403, "0")
    desk.clock.ms += HOUR
    assert (await desk.call("GET", f"/repos/{UPSTREAM}"))[0] == 200


async def test_lists_are_paged_by_links(desk, pull):
    for number in range(5):
        await desk.github.comment(pull, f"comment {number}", by="octocat")
    token = await desk.token()
    path, seen = f"/repos/{UPSTREAM}/issues/{pull.number}/comments?per_page=2", []
    while path:
        _, rows, headers = await desk.call("GET", path, token=token)
        seen += [row["body"] for row in rows]
        links = dict(reversed(part.split("; ")) for part in headers.get("Link", "").split(", ") if part)
        path = links.get('rel="next"', "").strip("<>")
    assert seen == [f"comment {number}" for number in range(5)]
    everything = f"/repos/{UPSTREAM}/issues/{pull.number}/comments?per_page=500"
    assert len((await desk.call("GET", everything, token=token))[1]) == 5
