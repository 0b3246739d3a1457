"""The demo's identity provider: claims, key rotation, outages, tokens for jobs."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import aiohttp
import jwt
import pytest

from bot.demo.issuer import Issuer

NOW = 1_790_000_000_000
JOB = {"repository": "org/npu", "repository_id": 42, "run_id": 4455, "run_attempt": 2}


class StillClock:
    """A clock that stands still."""

    def now(self):
        return NOW

    async def sleep(self, seconds):
        raise AssertionError("an identity provider does not wait")


@pytest.fixture
async def issuer():
    issuer = Issuer(clock=StillClock())
    await issuer.start()
    yield issuer
    await issuer.stop()


async def get(url, **options):
    async with aiohttp.ClientSession() as session, session.get(url, **options) as answer:
        return answer.status, await answer.json()


async def keys(issuer):
    """The published keys by id, discovered as a verifier does."""
    _, discovery = await get(f"{issuer.url}/.well-known/openid-configuration")
    assert discovery["issuer"] == issuer.url
    _, answer = await get(discovery["jwks_uri"])
    return {key["kid"]: jwt.PyJWK(key) for key in answer["keys"]}


async def verified(issuer, token):
    """The token's claims, with the signature verified; the times are not, as the clock stands still."""
    key = (await keys(issuer))[jwt.get_unverified_header(token)["kid"]]
    options = {"verify_exp": False, "verify_nbf": False, "verify_iat": False, "verify_aud": False}
    return jwt.decode(token, key, algorithms=["RS256"], issuer=issuer.url, options=options)


async def test_a_token_names_repository_and_run_as_strings_and_is_valid_for_five_minutes(issuer):
    claims = await verified(issuer, issuer.mint(**JOB))

    assert claims["aud"] == "ootbot"
    assert claims["iat"] == NOW // 1000
    assert claims["exp"] - claims["iat"] == 300
    assert claims["iat"] - claims["nbf"] == 600
    assert claims["sub"] == "repo:org/npu:ref:refs/heads/main"
    assert claims["repository_owner"] == "org"
    assert claims["job_workflow_ref"] == "org/npu/.github/workflows/ci.yml@refs/heads/main"
    assert claims["event_name"] == "repository_dispatch"
    ids = [claims[name] for name in ("repository_id", "run_id", "run_attempt")]
    assert ids == ["42", "4455", "2"]


async def test_every_token_has_its_own_id(issuer):
    first, second = [await verified(issuer, issuer.mint(**JOB)) for _ in range(2)]

    assert first["jti"] != second["jti"]


async def test_claims_can_be_replaced_added_and_omitted(issuer):
    token = issuer.mint(
        **JOB, audience="other", lifetime=-60, event_name="push", environment="lab", check_run_id=None
    )

    claims = await verified(issuer, token)

    assert (claims["aud"], claims["event_name"], claims["environment"]) == ("other", "push", "lab")
    assert claims["exp"] == NOW // 1000 - 60
    assert "check_run_id" not in claims


@pytest.mark.parametrize("keep_old", [True, False])
async def test_after_a_rotation_old_tokens_are_valid_while_their_key_is_published(issuer, keep_old):
    old = jwt.get_unverified_header(issuer.mint(**JOB))["kid"]

    issuer.rotate(keep_old=keep_old)

    new = jwt.get_unverified_header(issuer.mint(**JOB))["kid"]
    assert old != new
    assert set(await keys(issuer)) == ({old, new} if keep_old else {new})


async def test_an_outage_answers_503_and_every_request_for_keys_is_counted(issuer):
    url = f"{issuer.url}/.well-known/jwks"
    issuer.outage = True
    assert (await get(url))[0] == 503
    assert (await get(f"{issuer.url}/.well-known/openid-configuration"))[0] == 503

    issuer.outage = False
    assert (await get(url))[0] == 200
    assert issuer.fetches == 2


async def test_a_job_gets_tokens_for_its_run_and_the_requested_audience(issuer):
    mine = issuer.request_env(**JOB, check_run_id="77")
    issuer.request_env(repository="org/tpu", run_id="1")
    bearer = {"Authorization": f"Bearer {mine['ACTIONS_ID_TOKEN_REQUEST_TOKEN']}"}

    status, answer = await get(mine["ACTIONS_ID_TOKEN_REQUEST_URL"] + "&audience=bots", headers=bearer)

    claims = await verified(issuer, answer["value"])
    assert status == 200
    assert (claims["repository"], claims["aud"]) == ("org/npu", "bots")
    assert (claims["run_id"], claims["check_run_id"]) == ("4455", "77")


async def test_the_default_audience_is_the_owner(issuer):
    mine = issuer.request_env(**JOB)
    bearer = {"Authorization": f"Bearer {mine['ACTIONS_ID_TOKEN_REQUEST_TOKEN']}"}

    _, answer = await get(mine["ACTIONS_ID_TOKEN_REQUEST_URL"], headers=bearer)

    assert (await verified(issuer, answer["value"]))["aud"] == "https://github.com/org"


@pytest.mark.parametrize("authorization", ["", "Bearer made-up", "Basic {}"])
async def test_a_request_without_the_jobs_credential_gets_no_token(issuer, authorization):
    mine = issuer.request_env(**JOB)
    header = {"Authorization": authorization.format(mine["ACTIONS_ID_TOKEN_REQUEST_TOKEN"])}

    status, _ = await get(mine["ACTIONS_ID_TOKEN_REQUEST_URL"], headers=header)

    assert status == 401


async def test_the_reporting_action_gets_its_token_from_the_issuer(issuer, tmp_path):
    """The action fetches a token, then gets a 404 from the address it reports to."""
    script = Path(__file__).parents[2] / "actions" / "report" / "report.py"
    options = ["--status=in_progress", "--workflow-name=CI", "--job-name=build", "--run-id=4455"]
    target = ["--delivery-id=d", f"--url={issuer.url}/nobody", "--deadline=60"]

    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(script), *options, *target),
        env={"PATH": os.environ["PATH"], **issuer.request_env(**JOB)},
        cwd=tmp_path,
        stderr=asyncio.subprocess.PIPE,
    )
    _, output = await process.communicate()

    assert process.returncode == 1
    assert b"answered 404" in output
