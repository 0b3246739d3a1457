"""Who gets into the simulated GitHub, and how far? Tokens of Apps and installations."""

from __future__ import annotations

import pytest

from bot.demo.github.keys import private_key
from tests.demo.desk import (
    HOUR,
    UPSTREAM,
    run_of,
)

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
