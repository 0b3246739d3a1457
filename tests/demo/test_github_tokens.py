"""Tokens of Apps and installations on the simulated GitHub: who is let in, and for what."""

from __future__ import annotations

import pytest

from bot.demo.github.auth import private_key
from tests.demo.app_client import (
    HOUR,
    UPSTREAM,
    check_run_body,
)

APP_TOKENS = {
    "as documented": ({}, 200),
    "lifetime of ten minutes": ({"exp": 600}, 200),
    "lifetime over ten minutes": ({"exp": 601}, 401),
    "expired": ({"exp": 0}, 401),
    "no expiry": ({"exp": None}, 401),
    "issued within a minute from now": ({"iat": 60}, 200),
    "issued further in the future": ({"iat": 61}, 401),
    "no time of issue": ({"iat": None}, 401),
    "another issuer": ({"iss": "1"}, 401),
}


@pytest.mark.parametrize(("claims", "status"), APP_TOKENS.values(), ids=APP_TOKENS)
async def test_the_times_of_app_tokens_are_checked(client, claims, status):
    now = client.clock.now() // 1000
    absolute = {name: value + now if isinstance(value, int) else value for name, value in claims.items()}
    got, _, _ = await client.call("GET", "/app", token=client.jwt(**absolute))
    assert got == status


async def test_app_tokens_must_be_signed_with_the_apps_key_and_rs256(client):
    forged = client.jwt(key=private_key())
    symmetric = client.jwt(key="k" * 32, algorithm="HS256")
    assert (await client.call("GET", "/app", token=forged))[0] == 401
    assert (await client.call("GET", "/app", token=symmetric))[0] == 401
    assert (await client.call("GET", "/app", token="rubbish"))[0] == 401
    assert (await client.call("GET", "/app", token=client.jwt(iss=client.app.client_id)))[0] == 200


async def test_installation_tokens_look_like_githubs_and_expire_after_an_hour(client):
    token = await client.token()
    assert token.startswith("ghs_")
    assert len(token) == 520
    assert "." in token
    client.clock.advance(HOUR - 1)
    assert (await client.call("GET", f"/repos/{UPSTREAM}", token=token))[0] == 200
    client.clock.advance(1)
    assert (await client.call("GET", f"/repos/{UPSTREAM}", token=token))[0] == 401


async def test_a_token_covers_only_its_repositories(client):
    other = client.github.add_repo("octo-org/other")
    token = await client.token(repository_ids=[other.id])
    assert (await client.call("GET", f"/repos/{other.full_name}", token=token))[0] == 200
    assert (await client.call("GET", f"/repositories/{other.id}", token=token))[0] == 200
    assert (await client.call("GET", f"/repos/{UPSTREAM}", token=token))[0] == 404
    _, body, _ = await client.call("GET", "/installation/repositories", token=token)
    assert [each["full_name"] for each in body["repositories"]] == ["octo-org/other"]


async def test_a_restricted_token_has_only_its_permissions(client, pull):
    token = await client.token(permissions={"checks": "read"}, repositories=["project"])
    path = f"/repos/{UPSTREAM}/commits/{pull.head_sha}/check-runs"
    assert (await client.call("GET", path, token=token))[0] == 200
    status, body, headers = await client.call(
        "POST", f"/repos/{UPSTREAM}/check-runs", check_run_body(pull), token=token
    )
    assert (status, body["message"]) == (403, "Resource not accessible by integration")
    assert headers["X-Accepted-GitHub-Permissions"] == "checks=write"


@pytest.mark.parametrize(
    "restrictions",
    [{"repositories": ["nowhere"]}, {"repository_ids": [1]}, {"permissions": {"members": "read"}}],
    ids=str,
)
async def test_a_token_cannot_exceed_the_installation(client, restrictions):
    path = f"/app/installations/{client.installation().id}/access_tokens"
    assert (await client.call("POST", path, restrictions, token=client.jwt()))[0] == 422


async def test_archived_suspended_and_removed_repositories_refuse_writes(client):
    repo, token = client.github.state.repo(UPSTREAM), await client.token()
    path, body = f"/repos/{UPSTREAM}/dispatches", {"event_type": "go"}
    client.github.archive(repo)
    assert (await client.call("POST", path, body, token=token))[0] == 403
    client.github.archive(repo, archived=False)
    client.github.suspend(repo, client.app)
    assert (await client.call("POST", path, body, token=token))[0] == 403
    client.github.suspend(repo, client.app, suspended=False)
    client.github.add_repo("octo-org/other")
    client.github.uninstall(repo, client.app)
    assert (await client.call("POST", path, body, token=token))[0] == 404
    by_app = await client.call("GET", f"/repos/{UPSTREAM}/installation", token=client.jwt())
    assert by_app[0] == 404


CALLERS = {
    "no credentials": ("GET", "/app", "", 401),
    "an installation token where the App's is needed": ("GET", "/app", "installation", 401),
    "an App token where an installation's is needed": ("GET", f"/repos/{UPSTREAM}", "app", 403),
    "an unknown repository": ("GET", "/repos/octo-org/none", "installation", 404),
    "an unknown endpoint": ("GET", "/teapot", "installation", 404),
    "an unknown pull request": ("GET", f"/repos/{UPSTREAM}/pulls/9", "installation", 404),
    "an unknown commit": ("GET", f"/repos/{UPSTREAM}/commits/abc", "installation", 422),
    "a missing file": ("GET", f"/repos/{UPSTREAM}/contents/no", "installation", 404),
    "names in another case": ("GET", "/repos/OCTO-org/Project", "installation", 200),
}


@pytest.mark.parametrize(("method", "path", "who", "status"), CALLERS.values(), ids=CALLERS)
async def test_every_caller_gets_the_right_status(client, method, path, who, status):
    token = {"app": client.jwt(), "installation": await client.token(), "": ""}[who]
    assert (await client.call(method, path, token=token))[0] == status
