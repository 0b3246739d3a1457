"""Does the simulated GitHub enforce what GitHub enforces? Asked over HTTP, as any App would."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp
import jwt
import pytest
from aiohttp import web

from bot.demo.github import SimulatedGitHub
from bot.demo.github.keys import private_key

KEY = private_key()
SECRET = "It's a Secret to Everybody"
UPSTREAM = "octo-org/project"
HOUR = 3_600_000


@dataclass
class Hands:
    """A clock that stands still until a test turns it."""

    ms: int = field(default_factory=lambda: time.time_ns() // 1_000_000)

    def now(self):
        return self.ms

    async def sleep(self, seconds):
        self.ms += int(seconds * 1000)


class Listener:
    """An App's webhook door that keeps what it gets."""

    def __init__(self):
        self.got = []
        self.status = 202

    async def take(self, request):
        self.got.append((dict(request.headers), await request.read()))
        return web.Response(status=self.status, text="taken")

    @property
    def events(self):
        return [f"{headers['X-GitHub-Event']}.{json.loads(body).get('action')}" for headers, body in self.got]


@asynccontextmanager
async def listening():
    listener = Listener()
    app = web.Application(client_max_size=30_000_000)
    app.router.add_post("/hook", listener.take)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    listener.url = f"http://127.0.0.1:{runner.addresses[0][1]}/hook"
    try:
        yield listener
    finally:
        await runner.cleanup()


class Desk:
    """Where a test sits: a GitHub, an App with its door, and a client that speaks for the App."""

    def __init__(self, github, clock, app, listener, session):
        self.github, self.clock, self.app = github, clock, app
        self.listener, self.session = listener, session
        self.tokens = {}

    def jwt(self, app=None, key=None, algorithm="RS256", **changes):
        now = self.clock.now() // 1000
        claims = {"iat": now - 60, "exp": now + 540, "iss": str((app or self.app).app_id)}
        claims |= changes
        return jwt.encode(
            {name: value for name, value in claims.items() if value is not None},
            key or (app or self.app).private_key_pem,
            algorithm=algorithm,
        )

    def installation(self, app=None, account="octo-org"):
        return self.github.world.installation(app or self.app, account)

    async def token(self, app=None, account="octo-org", **narrowed):
        app = app or self.app
        path = f"/app/installations/{self.installation(app, account).id}/access_tokens"
        status, body, _ = await self.call("POST", path, narrowed, token=self.jwt(app))
        assert status == 201, body
        return body["token"]

    async def call(self, method, path, body=None, *, token=None, headers=None):
        """Return status, body and headers of one request, with an installation token by default."""
        token = await self.token() if token is None else token
        sent = {"Authorization": f"Bearer {token}"} | (headers or {})
        url = path if path.startswith("http") else self.github.api_url + path
        async with self.session.request(method, url, json=body, headers=sent) as answer:
            raw = await answer.read()
            is_json = answer.content_type == "application/json" and raw
            return answer.status, json.loads(raw) if is_json else raw, answer.headers


@pytest.fixture
async def desk():
    clock = Hands()
    github = SimulatedGitHub(clock=clock)
    await github.start()
    try:
        async with listening() as listener, aiohttp.ClientSession() as session:
            app = github.register_app(webhook_url=listener.url, webhook_secret=SECRET, private_key_pem=KEY)
            github.add_repo(UPSTREAM)
            yield Desk(github, clock, app, listener, session)
            await github.settled()
    finally:
        await github.stop()


@pytest.fixture
async def pull(desk):
    return await desk.github.open_pull(UPSTREAM)


def run_of(pull, **more):
    return {"name": "oot / npu", "head_sha": pull.head_sha, **more}


OUTPUT = {"title": "t", "summary": "s"}
NOTE = {
    "path": "a.py",
    "start_line": 1,
    "end_line": 1,
    "annotation_level": "failure",
    "message": "wrong",
}
BUTTON = {"label": "Re-run", "description": "Run it again", "identifier": "again"}

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


APP_TOKENS = {
    "as documented": ({}, 200),
    "ten minutes to live": ({"exp": 600}, 200),
    "over ten minutes to live": ({"exp": 601}, 401),
    "expired": ({"exp": 0}, 401),
    "no expiry": ({"exp": None}, 401),
    "issued within a minute from now": ({"iat": 60}, 200),
    "issued in the future": ({"iat": 61}, 401),
    "never issued": ({"iat": None}, 401),
    "another issuer": ({"iss": "1"}, 401),
}


@pytest.mark.parametrize(("claims", "status"), APP_TOKENS.values(), ids=APP_TOKENS)
async def test_app_tokens_are_checked_by_the_clock(desk, claims, status):
    now = desk.clock.now() // 1000
    absolute = {name: value + now if isinstance(value, int) else value for name, value in claims.items()}
    got, _, _ = await desk.call("GET", "/app", token=desk.jwt(**absolute))
    assert got == status


async def test_app_tokens_must_be_signed_with_the_apps_key_and_rs256(desk):
    forged = desk.jwt(key=private_key())
    symmetric = desk.jwt(key="k" * 32, algorithm="HS256")
    assert (await desk.call("GET", "/app", token=forged))[0] == 401
    assert (await desk.call("GET", "/app", token=symmetric))[0] == 401
    assert (await desk.call("GET", "/app", token="rubbish"))[0] == 401
    assert (await desk.call("GET", "/app", token=desk.jwt(iss=desk.app.client_id)))[0] == 200


async def test_installation_tokens_look_like_githubs_and_die_after_an_hour(desk):
    token = await desk.token()
    assert token.startswith("ghs_")
    assert len(token) == 520
    assert "." in token
    desk.clock.ms += HOUR - 1
    assert (await desk.call("GET", f"/repos/{UPSTREAM}", token=token))[0] == 200
    desk.clock.ms += 1
    assert (await desk.call("GET", f"/repos/{UPSTREAM}", token=token))[0] == 401


async def test_a_token_reaches_its_repositories_only(desk):
    other = desk.github.add_repo("octo-org/other")
    token = await desk.token(repository_ids=[other.id])
    assert (await desk.call("GET", f"/repos/{other.full_name}", token=token))[0] == 200
    assert (await desk.call("GET", f"/repositories/{other.id}", token=token))[0] == 200
    assert (await desk.call("GET", f"/repos/{UPSTREAM}", token=token))[0] == 404
    _, body, _ = await desk.call("GET", "/installation/repositories", token=token)
    assert [each["full_name"] for each in body["repositories"]] == ["octo-org/other"]


async def test_a_token_does_what_it_was_narrowed_to_only(desk, pull):
    token = await desk.token(permissions={"checks": "read"}, repositories=["project"])
    path = f"/repos/{UPSTREAM}/commits/{pull.head_sha}/check-runs"
    assert (await desk.call("GET", path, token=token))[0] == 200
    status, body, headers = await desk.call(
        "POST", f"/repos/{UPSTREAM}/check-runs", run_of(pull), token=token
    )
    assert (status, body["message"]) == (403, "Resource not accessible by integration")
    assert headers["X-Accepted-GitHub-Permissions"] == "checks=write"


@pytest.mark.parametrize(
    "narrowed",
    [{"repositories": ["nowhere"]}, {"repository_ids": [1]}, {"permissions": {"members": "read"}}],
    ids=str,
)
async def test_a_token_cannot_be_wider_than_the_installation(desk, narrowed):
    path = f"/app/installations/{desk.installation().id}/access_tokens"
    assert (await desk.call("POST", path, narrowed, token=desk.jwt()))[0] == 422


async def test_suspended_archived_and_removed_all_refuse(desk):
    repo, token = desk.github.world.repo(UPSTREAM), await desk.token()
    path, body = f"/repos/{UPSTREAM}/dispatches", {"event_type": "go"}
    desk.github.archive(repo)
    assert (await desk.call("POST", path, body, token=token))[0] == 403
    desk.github.archive(repo, archived=False)
    desk.github.suspend(repo, desk.app)
    assert (await desk.call("POST", path, body, token=token))[0] == 403
    desk.github.suspend(repo, desk.app, suspended=False)
    desk.github.add_repo("octo-org/other")
    desk.github.uninstall(repo, desk.app)
    assert (await desk.call("POST", path, body, token=token))[0] == 404
    by_app = await desk.call("GET", f"/repos/{UPSTREAM}/installation", token=desk.jwt())
    assert by_app[0] == 404


DOORS = {
    "nobody": ("GET", "/app", "", 401),
    "an installation where the App is asked for": ("GET", "/app", "installation", 401),
    "the App where an installation is asked for": ("GET", f"/repos/{UPSTREAM}", "app", 403),
    "an unknown repository": ("GET", "/repos/octo-org/none", "installation", 404),
    "an unknown endpoint": ("GET", "/teapot", "installation", 404),
    "an unknown pull request": ("GET", f"/repos/{UPSTREAM}/pulls/9", "installation", 404),
    "a commit nobody knows": ("GET", f"/repos/{UPSTREAM}/commits/abc", "installation", 422),
    "a file that is not there": ("GET", f"/repos/{UPSTREAM}/contents/no", "installation", 404),
    "names in another case": ("GET", "/repos/OCTO-org/Project", "installation", 200),
}


@pytest.mark.parametrize(("method", "path", "who", "status"), DOORS.values(), ids=DOORS)
async def test_doors_open_to_whom_they_should(desk, method, path, who, status):
    token = {"app": desk.jwt(), "installation": await desk.token(), "": ""}[who]
    assert (await desk.call(method, path, token=token))[0] == status


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


async def test_webhooks_are_signed_over_the_bytes_that_are_sent(desk, pull):
    headers, body = desk.listener.got[0]
    digest = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
    assert headers["X-Hub-Signature-256"] == f"sha256={digest}"
    assert headers["X-Hub-Signature"].startswith("sha1=")
    assert headers["X-GitHub-Event"] == "pull_request"
    assert headers["X-GitHub-Hook-Installation-Target-ID"] == str(desk.app.app_id)
    assert headers["X-GitHub-Hook-Installation-Target-Type"] == "integration"
    assert headers["User-Agent"].startswith("GitHub-Hookshot/")
    assert headers["Content-Type"] == "application/json"
    payload = json.loads(body)
    assert payload["pull_request"]["head"]["sha"] == pull.head_sha
    assert payload["pull_request"]["head"]["repo"]["full_name"] == "octocat/project"
    assert payload["pull_request"]["base"]["repo"]["full_name"] == UPSTREAM
    assert payload["installation"]["id"] == desk.installation().id
    assert len(body) > 10_000


async def test_a_pull_requests_life_is_told_step_by_step(desk, pull):
    github = desk.github
    await github.push_commit(pull)
    await github.label(pull, "oot/npu")
    await github.unlabel(pull, "oot/npu")
    await github.edit_title(pull, "Better")
    await github.close(pull)
    await github.reopen(pull)
    await github.merge(pull)
    assert desk.listener.events == [
        "pull_request.opened",
        "pull_request.synchronize",
        "pull_request.labeled",
        "pull_request.unlabeled",
        "pull_request.edited",
        "pull_request.closed",
        "pull_request.reopened",
        "pull_request.closed",
        "push.None",
        "check_suite.requested",
    ]


async def test_one_guid_reaches_every_app_that_is_subscribed_and_permitted(desk):
    async with listening() as door:
        for slug, permissions in (("other", {"pull_requests": "read"}), ("blind", {})):
            app = desk.github.register_app(
                webhook_url=f"{door.url}",
                webhook_secret="s",
                permissions=permissions,
                slug=slug,
                private_key_pem=KEY,
            )
            desk.github.install(UPSTREAM, app)
        await desk.github.open_pull(UPSTREAM)
        await desk.github.push(UPSTREAM)
    assert door.events == ["pull_request.opened"]
    ours = desk.listener.got[0][0]["X-GitHub-Delivery"]
    assert door.got[0][0]["X-GitHub-Delivery"] == ours


async def test_failed_deliveries_are_logged_never_retried_and_redelivered_on_request(desk):
    desk.listener.status = 503
    await desk.github.open_pull(UPSTREAM)
    assert len(desk.listener.got) == 1
    token = desk.jwt()
    _, rows, _ = await desk.call("GET", "/app/hook/deliveries", token=token)
    assert [(row["status_code"], row["redelivery"]) for row in rows] == [(503, False)]
    desk.listener.status = 202
    path = f"/app/hook/deliveries/{rows[0]['id']}"
    assert (await desk.call("POST", f"{path}/attempts", token=token))[0] == 202
    await desk.github.settled()
    _, after, _ = await desk.call("GET", "/app/hook/deliveries", token=token)
    assert [(row["status"], row["redelivery"]) for row in after] == [
        ("OK", True),
        ("Invalid HTTP Response: 503", False),
    ]
    assert len({row["guid"] for row in after}) == 1
    assert desk.listener.got[0][1] == desk.listener.got[1][1]
    _, detail, _ = await desk.call("GET", path, token=token)
    assert detail["request"]["payload"] == json.loads(desk.listener.got[0][1])
    assert detail["request"]["headers"]["X-GitHub-Event"] == "pull_request"


async def test_an_unreachable_app_is_a_row_in_the_log(desk):
    desk.app.webhook_url = "http://127.0.0.1:9/hook"
    await desk.github.open_pull(UPSTREAM)
    assert [(each.status_code, each.ok) for each in desk.github.deliveries] == [(502, False)]


async def test_the_delivery_log_is_paged_by_cursor_and_forgets_after_three_days(desk):
    for number in range(5):
        await desk.github.deliver("ping", {"zen": number})
    token, path, seen = desk.jwt(), "/app/hook/deliveries?per_page=2", []
    while path:
        _, rows, headers = await desk.call("GET", path, token=token)
        seen += [row["id"] for row in rows]
        path = headers.get("Link", "").partition("<")[2].partition(">")[0]
    assert seen == [each.id for each in reversed(desk.github.deliveries)]
    desk.clock.ms += 3 * 24 * HOUR + 1
    assert (await desk.call("GET", "/app/hook/deliveries", token=desk.jwt()))[1] == []


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


async def test_a_fault_before_prevents_the_act_and_a_fault_after_only_its_answer(desk, pull):
    path = f"/repos/{UPSTREAM}/issues/{pull.number}/comments"
    desk.github.faults.add(method="POST", path="/comments$", when="before", status=502)
    assert (await desk.call("POST", path, {"body": "one"}))[0] == 502
    assert desk.github.comments(pull) == []
    desk.github.faults.add(method="POST", path="/comments$", when="after", status=504)
    assert (await desk.call("POST", path, {"body": "two"}))[0] == 504
    assert (await desk.call("POST", path, {"body": "three"}))[0] == 201
    assert [each.body for each in desk.github.comments(pull)] == ["two", "three"]
    posts = [each for each in desk.github.calls if each.path.endswith("/comments")]
    assert [(each.status, each.faulted) for each in posts] == [
        (502, True),
        (504, True),
        (201, False),
    ]


async def test_a_dropped_connection_has_acted_only_after(desk):
    path, body = f"/repos/{UPSTREAM}/dispatches", {"event_type": "go"}
    for when in ("before", "after"):
        desk.github.faults.add(method="POST", path="/dispatches$", when=when, drop=True)
        with pytest.raises(aiohttp.ClientError):
            await desk.call("POST", path, body)
    assert len(desk.github.dispatches) == 1
    assert [each.status for each in desk.github.calls if "dispatches" in each.path] == [0, 0]


async def test_an_answer_that_nobody_waits_for_still_means_that_it_happened(desk, pull):
    class Waits(Hands):
        started, go = asyncio.Event(), asyncio.Event()

        async def sleep(self, seconds):
            self.started.set()
            await self.go.wait()

    clock = desk.github.world.clock = Waits()
    desk.github.faults.add(method="POST", path="/comments$", when="after", status=None, delay=9)
    path = f"/repos/{UPSTREAM}/issues/{pull.number}/comments"
    caller = asyncio.create_task(desk.call("POST", path, {"body": "late"}))
    await clock.started.wait()
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    clock.go.set()
    await desk.call("GET", path)
    assert [each.body for each in desk.github.comments(pull)] == ["late"]


async def test_rate_limits_come_on_demand_in_every_form(desk):
    path = f"/repos/{UPSTREAM}"
    secondary = {"message": "You have exceeded a secondary rate limit."}
    faults = desk.github.faults
    faults.add(path=f"^{path}$", status=403, headers={"Retry-After": "7"}, body=secondary)
    faults.add(path=f"^{path}$", status=429)
    faults.add(path=f"^{path}$", status=None, headers={"X-RateLimit-Remaining": "0"})
    answers = [await desk.call("GET", path) for _ in range(4)]
    assert [status for status, _, _ in answers] == [403, 429, 200, 200]
    assert answers[0][1] == secondary
    assert answers[0][2]["Retry-After"] == "7"
    assert answers[2][2]["X-RateLimit-Remaining"] == "0"
    assert answers[3][2]["X-RateLimit-Remaining"] != "0"


async def test_deliveries_get_lost_on_demand(desk):
    faults = desk.github.faults
    faults.add(method="HOOK", path=r"^pull_request\.opened$", drop=True)
    await desk.github.open_pull(UPSTREAM)
    assert (desk.github.deliveries, desk.listener.got) == ([], [])
    faults.add(method="HOOK", path=r"^pull_request\.opened$", when="before")
    await desk.github.open_pull(UPSTREAM)
    assert (len(desk.github.deliveries), desk.listener.got) == (1, [])
    faults.add(method="HOOK", path=r"^pull_request\.opened$", when="after")
    await desk.github.open_pull(UPSTREAM)
    assert (len(desk.listener.got), desk.github.deliveries[-1].ok) == (1, False)


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


async def test_a_backend_hooks_into_dispatches_after_they_were_answered(desk):
    github, seen = desk.github, []

    async def backend(dispatch):
        seen.append((dispatch.repo.full_name, dispatch.event_type, dispatch.client_payload))
        run = await github.start_run(dispatch.repo)
        job = await github.start_job(run, "test", labels=["npu"])
        await github.finish_job(job, "failure")
        await github.finish_run(run, "failure")

    github.on_dispatch = backend
    body = {"event_type": "pull_request", "client_payload": {"delivery_id": "1"}}
    assert (await desk.call("POST", f"/repos/{UPSTREAM}/dispatches", body))[0] == 204
    await github.settled()
    assert seen == [(UPSTREAM, "pull_request", {"delivery_id": "1"})]
    assert desk.listener.events == [
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
    _, body, _ = await desk.call("GET", f"/repos/{UPSTREAM}/actions/runs?event=repository_dispatch")
    run = body["workflow_runs"][0]
    assert (body["total_count"], run["conclusion"], run["run_attempt"]) == (1, "failure", 1)


async def test_a_failing_backend_is_not_kept_quiet(desk):
    async def backend(dispatch):
        raise LookupError(dispatch.event_type)

    desk.github.on_dispatch = backend
    await desk.call("POST", f"/repos/{UPSTREAM}/dispatches", {"event_type": "go"})
    with pytest.raises(LookupError, match="go"):
        await desk.github.settled()


async def test_runs_are_rerun_within_thirty_days_once_completed_if_something_failed(desk):
    github, asked = desk.github, []

    async def backend(run, failed_only):
        asked.append((run.id, failed_only))

    github.on_rerun = backend
    run = await github.start_run(UPSTREAM)
    job = await github.start_job(run, "test")
    path = f"/repos/{UPSTREAM}/actions/runs/{run.id}"
    assert (await desk.call("POST", f"{path}/rerun"))[0] == 403
    await github.finish_job(job, "success")
    await github.finish_run(run, "success")
    assert (await desk.call("POST", f"{path}/cancel"))[0] == 409
    assert (await desk.call("POST", f"{path}/rerun-failed-jobs"))[0] == 403
    assert (await desk.call("POST", f"{path}/rerun"))[0] == 201
    again = await github.start_job(run, "test")
    assert (await desk.call("GET", path))[1]["run_attempt"] == 2
    assert (await desk.call("GET", f"{path}/attempts/1"))[1]["conclusion"] == "success"
    assert (await desk.call("GET", f"{path}/attempts/3"))[0] == 404
    latest, every = [
        [row["id"] for row in (await desk.call("GET", f"{path}/jobs{query}"))[1]["jobs"]]
        for query in ("", "?filter=all")
    ]
    assert (latest, every) == ([again.id], [job.id, again.id])
    assert (await desk.call("POST", f"{path}/cancel"))[0] == 202
    await github.settled()
    assert (run.conclusion, again.conclusion) == ("cancelled", "cancelled")
    assert (await desk.call("POST", f"{path}/rerun-failed-jobs"))[0] == 201
    await github.settled()
    assert asked == [(run.id, False), (run.id, True)]
    await github.finish_run(run, "failure")
    desk.clock.ms += 31 * 24 * HOUR
    assert (await desk.call("POST", f"{path}/rerun"))[0] == 403


async def test_runs_are_found_by_when_they_were_created(desk):
    run = await desk.github.start_run(UPSTREAM)
    day = time.strftime("%Y-%m-%d", time.gmtime(run.created_at / 1000))
    for wanted, count in {
        day: 1,
        f">={day}": 1,
        f">{day}": 0,
        f"{day}..*": 1,
        "<2020-01-01": 0,
    }.items():
        params = f"/repos/{UPSTREAM}/actions/runs?created={wanted}"
        assert (await desk.call("GET", params))[1]["total_count"] == count, wanted
    bad = f"/repos/{UPSTREAM}/actions/runs?created=soon"
    assert (await desk.call("GET", bad))[0] == 422


async def test_workflow_dispatches_name_their_run_when_asked(desk):
    path = f"/repos/{UPSTREAM}/actions/workflows/ci.yml/dispatches"
    many = {"ref": "main", "inputs": {f"i{number}": "x" for number in range(26)}}
    assert (await desk.call("POST", path, {"ref": "main"}))[0] == 204
    assert (await desk.call("POST", path, many))[0] == 422
    assert (await desk.call("POST", path, {"ref": "nowhere"}))[0] == 422
    assert (await desk.call("POST", path.replace("ci.yml", "no.yml"), {"ref": "main"}))[0] == 404
    asked = {"ref": "main", "return_run_details": True, "inputs": {"a": "b"}}
    status, body, _ = await desk.call("POST", path, asked)
    assert status == 200
    assert desk.github.dispatches[-1].run.id == body["workflow_run_id"]
    assert desk.github.dispatches[-1].client_payload == {"a": "b"}


async def test_a_push_lists_its_commits_and_writes_its_repositorys_times_as_numbers(desk):
    before = desk.github.world.repo(UPSTREAM).branches["main"]
    after = await desk.github.push(UPSTREAM, files={"README.md": "new", "a.py": "1"})
    body = json.loads(desk.listener.got[0][1])
    assert (body["ref"], body["before"], body["after"]) == ("refs/heads/main", before, after)
    [commit] = body["commits"]
    assert (commit["id"], commit["added"], commit["modified"]) == (after, ["a.py"], ["README.md"])
    assert body["repository"]["pushed_at"] == desk.clock.now() // 1000


async def test_an_app_learns_of_its_installation(desk):
    repo = desk.github.add_repo("octo-org/other")
    await desk.github.announce_installation(desk.installation(), "added", repo)
    assert desk.listener.events == ["installation_repositories.added"]
    added = json.loads(desk.listener.got[0][1])["repositories_added"]
    assert [each["full_name"] for each in added] == ["octo-org/other"]


async def see(desk, path):
    async with desk.session.get(desk.github.url + path) as answer:
        return answer.status, await answer.text()


async def press(desk, path, **form):
    async with desk.session.post(desk.github.url + path, data=form) as answer:
        return answer.status


async def test_a_pull_request_page_shows_conversation_and_checks(desk, pull):
    said = (
        "<!-- hidden -->\n| a | b |\n|---|--:|\n| 1 | @alice |\n\n"
        "<details><summary>more</summary>\n\n**bold** `@bob`\n\n</details>"
        '<script>alert(1)</script><img src=x onerror="alert(1)">\n\n[x](javascript:alert(1))'
    )
    await desk.github.comment(pull, said, by="octocat")
    body = run_of(pull, conclusion="failure", output={"title": "2 failed", "summary": "**which**"})
    await desk.call("POST", f"/repos/{UPSTREAM}/check-runs", body)
    status, page = await see(desk, f"/{UPSTREAM}/pull/{pull.number}")
    assert status == 200
    for shown in ("2 failed", "<strong>which</strong>", "oot / npu", "1 of 1 checks failed"):
        assert shown in page
    for kept in ("<td>1</td>", "<summary>more</summary>", "<strong>bold</strong>", ">@alice</a>"):
        assert kept in page
    assert "<code>@bob</code>" in page
    for gone in ("hidden", "<script", "onerror", 'href="javascript'):
        assert gone not in page


async def test_the_buttons_on_the_pages_work(desk, pull):
    body = run_of(pull, conclusion="failure", actions=[BUTTON])
    _, made, _ = await desk.call("POST", f"/repos/{UPSTREAM}/check-runs", body)
    await desk.github.settled()
    here, run = f"/{UPSTREAM}/pull/{pull.number}", f"/{UPSTREAM}/runs/{made['id']}"
    told = len(desk.listener.got)
    assert await press(desk, f"{run}/rerequest") == 200
    assert await press(desk, f"{run}/action", identifier="again") == 200
    assert await press(desk, f"{run}/action", identifier="dance") == 404
    assert await press(desk, f"{here}/comment", text="/oot help", by="octocat") == 200
    assert await press(desk, f"{here}/label", text="oot/npu") == 200
    assert await press(desk, f"{here}/push") == 200
    last = desk.github.deliveries[-1]
    assert await press(desk, f"/_/deliveries/{last.id}/redeliver") == 200
    assert desk.listener.events[told:] == [
        "check_run.rerequested",
        "check_run.requested_action",
        "issue_comment.created",
        "pull_request.labeled",
        "pull_request.synchronize",
        "pull_request.synchronize",
    ]


async def test_every_page_opens_and_every_other_address_is_a_404(desk, pull):
    run = await desk.github.start_run(UPSTREAM, display_title="A run")
    await desk.github.start_job(run, "test")
    noted = OUTPUT | {"text": "all of it", "annotations": [NOTE]}
    _, made, _ = await desk.call("POST", f"/repos/{UPSTREAM}/check-runs", run_of(pull, output=noted))
    for path, shown in {
        "/": UPSTREAM,
        f"/{UPSTREAM}": pull.title,
        f"/{UPSTREAM}/runs/{made['id']}": "all of it",
        f"/{UPSTREAM}/actions/runs/{run.id}": "A run",
        "/_/deliveries": "pull_request.opened",
        "/_/style.css": "prefers-color-scheme",
    }.items():
        status, page = await see(desk, path)
        assert (status, shown in page) == (200, True), path
    for path in ("/no/where", f"/{UPSTREAM}/pull/99", f"/{UPSTREAM}/runs/x"):
        assert (await see(desk, path))[0] == 404


async def test_forms_of_other_sites_are_refused(desk, pull):
    url = f"{desk.github.url}/{UPSTREAM}/pull/{pull.number}/close"
    async with desk.session.post(url, headers={"Origin": "http://evil.example"}) as answer:
        assert answer.status == 403
    assert pull.state == "open"
