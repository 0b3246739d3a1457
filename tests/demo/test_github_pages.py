"""Web pages of the simulated GitHub."""

from __future__ import annotations

from tests.demo.app_client import (
    ANNOTATION,
    BUTTON,
    OUTPUT,
    UPSTREAM,
    check_run_body,
)


async def get(client, path):
    async with client.session.get(client.github.url + path) as answer:
        return answer.status, await answer.text()


async def press(client, path, **form):
    async with client.session.post(client.github.url + path, data=form) as answer:
        return answer.status


async def test_a_pull_request_page_shows_conversation_and_checks(client, pull):
    text = (
        "<!-- hidden -->\n| a | b |\n|---|--:|\n| 1 | @alice |\n\n"
        "<details><summary>more</summary>\n\n**bold** `@bob`\n\n</details>"
        '<script>alert(1)</script><img src=x onerror="alert(1)">\n\n[x](javascript:alert(1))'
    )
    await client.github.comment(pull, text, by="octocat")
    body = check_run_body(pull, conclusion="failure", output={"title": "2 failed", "summary": "**which**"})
    await client.call("POST", f"/repos/{UPSTREAM}/check-runs", body)
    status, page = await get(client, f"/{UPSTREAM}/pull/{pull.number}")
    assert status == 200
    for shown in ("2 failed", "<strong>which</strong>", "oot / npu", "1 of 1 checks failed"):
        assert shown in page
    for kept in ("<td>1</td>", "<summary>more</summary>", "<strong>bold</strong>", ">@alice</a>"):
        assert kept in page
    assert "<code>@bob</code>" in page
    assert (await get(client, "/alice"))[0] == 200  # where the mention leads
    for gone in ("hidden", "<script", "onerror", 'href="javascript'):
        assert gone not in page


async def test_the_buttons_on_the_pages_work(client, pull):
    body = check_run_body(pull, conclusion="failure", actions=[BUTTON])
    _, made, _ = await client.call("POST", f"/repos/{UPSTREAM}/check-runs", body)
    await client.github.settled()
    here, run = f"/{UPSTREAM}/pull/{pull.number}", f"/{UPSTREAM}/runs/{made['id']}"
    before = len(client.receiver.received)
    assert await press(client, f"{run}/rerequest") == 200
    assert await press(client, f"{run}/action", identifier="again") == 200
    assert await press(client, f"{run}/action", identifier="dance") == 404
    assert await press(client, f"{here}/comment", text="/oot help", by="octocat") == 200
    assert await press(client, f"{here}/label", text="oot/npu") == 200
    assert await press(client, f"{here}/push") == 200
    last = client.github.deliveries[-1]
    assert await press(client, f"/_/deliveries/{last.id}/redeliver") == 200
    assert client.receiver.events[before:] == [
        "check_run.rerequested",
        "check_run.requested_action",
        "issue_comment.created",
        "pull_request.labeled",
        "pull_request.synchronize",
        "pull_request.synchronize",
    ]


async def test_every_page_opens_and_every_other_address_is_a_404(client, pull):
    run = await client.github.start_run(UPSTREAM, display_title="A run")
    await client.github.start_job(run, "test")
    noted = OUTPUT | {"text": "the full text", "annotations": [ANNOTATION]}
    _, made, _ = await client.call(
        "POST", f"/repos/{UPSTREAM}/check-runs", check_run_body(pull, output=noted)
    )
    for path, shown in {
        "/": UPSTREAM,
        f"/{UPSTREAM}": pull.title,
        f"/{UPSTREAM}/runs/{made['id']}": "the full text",
        f"/{UPSTREAM}/actions/runs/{run.id}": "A run",
        "/_/deliveries": "pull_request.opened",
        "/_/style.css": "prefers-color-scheme",
    }.items():
        status, page = await get(client, path)
        assert (status, shown in page) == (200, True), path
    for path in ("/no/where", f"/{UPSTREAM}/pull/99", f"/{UPSTREAM}/runs/x"):
        assert (await get(client, path))[0] == 404


async def test_forms_of_other_sites_are_refused(client, pull):
    url = f"{client.github.url}/{UPSTREAM}/pull/{pull.number}/close"
    async with client.session.post(url, headers={"Origin": "http://evil.example"}) as answer:
        assert answer.status == 403
    assert pull.state == "open"


async def test_what_pages_of_the_bot_link_to_is_there(client, pull):
    github, first = client.github, pull.commits[0]
    await github.push_commit(pull)
    status, page = await get(client, f"/{UPSTREAM}/commit/{pull.head_sha}")
    assert status == 200
    assert f"#{pull.number} {pull.title}" in page
    assert f'href="/{UPSTREAM}/commit/{first}"' in page  # its parent
    for refs in (f"{first[:12]}...{pull.head_sha}", f"main...{pull.head_sha}", f"main...{pull.head_sha[:7]}"):
        status, page = await get(client, f"/{UPSTREAM}/compare/{refs}")
        assert (status, pull.head_sha in page) == (200, True)
    run = await github.start_run(UPSTREAM, event="push", name="pull")
    left = github.add_artifact(run, "reports", {"a.txt": b"1"})
    async with client.session.get(
        f"{github.url}/{UPSTREAM}/actions/runs/{run.id}/artifacts/{left.id}"
    ) as answer:
        assert (answer.content_type, await answer.read()) == ("application/zip", left.content)
    for gone in (
        f"commit/{'0' * 40}",
        "compare/main...nothing",
        f"actions/runs/{run.id + 1}/artifacts/{left.id}",
        f"actions/runs/{run.id}/artifacts/x",
    ):
        assert (await get(client, f"/{UPSTREAM}/{gone}"))[0] == 404, gone


async def test_an_issue_is_opened_with_what_the_address_suggests(client):
    here = f"/{UPSTREAM}/issues/new"
    status, page = await get(client, f"{here}?title=DISABLED+test_a&body=%3Cscript%3E&labels=a,b")
    assert (status, "DISABLED test_a" in page, "<script>" in page) == (200, True, False)
    assert await press(client, here, title="", body="") == 400
    assert await press(client, here, title="DISABLED test_a", body="", labels="a, b") == 200
    (issue,) = client.github.state.repo(UPSTREAM).issues.values()
    assert (issue.title, issue.labels) == ("DISABLED test_a", ["a", "b"])


async def test_new_numbers_are_those_that_no_past_pull_request_has(client, pull):
    repo = client.github.state.repo(UPSTREAM)
    repo.pulls[140] = pull
    again = await client.github.open_pull(UPSTREAM)
    assert (pull.number, again.number) == (1, 2)
