"""Whose token is believed? Only what a trusted issuer signed for us, just now; and static keys of CIs without OpenID Connect."""

import hashlib
import hmac
import json

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.command import ootbot
from tests.harness import L2, L3, L4, UPSTREAM, replace, report_body, running
from tests.oot.reports.reporting import SUITE, encoded, post, token_of, traces
from tests.serving import SQLITE


async def public_pem(bot) -> tuple[str, bytes]:
    """The issuer's key id and public key, as everyone can fetch them."""
    async with bot.http.get(bot.issuer.url + "/.well-known/jwks") as answer:
        (key,) = (await answer.json())["keys"]
    public = jwt.PyJWK(key, algorithm="RS256").key
    return key["kid"], public.public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


async def forged_tokens(bot):
    """name: a token not to be believed, and a word the refusal must have."""
    honest = token_of(bot, L4)
    header, claims, signature = honest.split(".")
    kid, pem = await public_pem(bot)
    now = bot.clock.now() // 1000
    stranger = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    said = jwt.decode(honest, options={"verify_signature": False})

    def resigned(key, algorithm="RS256", **head):
        return jwt.encode(said, key, algorithm=algorithm, headers={"kid": kid} | head)

    confused = f"{encoded({'alg': 'HS256', 'typ': 'JWT', 'kid': kid})}.{claims}"
    mac = hmac.new(pem, confused.encode(), hashlib.sha256).digest()
    other = encoded(said | {"repository": L3})
    return {
        "empty": ("", "Bearer"),
        "no JWT": ("abc", "not a JWT"),
        "three empty parts": ("..", "not a JWT"),
        "alg none": (f"{encoded({'alg': 'none', 'typ': 'JWT'})}.{claims}.", "RS256"),
        "alg None": (f"{encoded({'alg': 'None', 'kid': kid})}.{claims}.{signature}", "RS256"),
        "HS256 with the public key": (f"{confused}.{encoded(mac)}", "RS256"),
        "RS512": (resigned(stranger, "RS512"), "RS256"),
        "claims changed": (f"{header}.{other}.{signature}", "not valid"),
        "signature cut": (honest[:-10], "not valid"),
        "a stranger's key under a known id": (resigned(stranger), "not valid"),
        "expired": (token_of(bot, L4, lifetime=-61), "expired"),
        "issued tomorrow": (token_of(bot, L4, iat=now + 86400, exp=now + 86700), "not valid yet"),
        "good from tomorrow": (token_of(bot, L4, nbf=now + 86400), "not valid yet"),
        "a quarter of an hour and a second": (token_of(bot, L4, lifetime=901), "lives longer"),
        "thirty years": (token_of(bot, L4, lifetime=30 * 365 * 86400), "lives longer"),
        "no exp": (token_of(bot, L4, exp=None), "exp"),
        "no iat": (token_of(bot, L4, iat=None), "iat"),
        "no aud": (token_of(bot, L4, aud=None), "aud"),
        "no iss": (token_of(bot, L4, iss=None), "issuer"),
        "exp is a text": (token_of(bot, L4, exp="tomorrow"), "exp"),
        "exp is true": (token_of(bot, L4, exp=True), "exp"),
        "another audience": (token_of(bot, L4, audience="https://github.com/org"), "ootbot"),
        "a list of audiences": (token_of(bot, L4, aud=["ootbot", "other"]), "audience"),
        "another issuer": (token_of(bot, L4, iss="http://127.0.0.1:9"), "issuer"),
        "the issuer with a slash": (token_of(bot, L4, iss=bot.issuer.url + "/"), "issuer"),
        "no repository": (token_of(bot, ""), "repository"),
    }


@SQLITE
async def test_a_token_that_proves_nothing_is_refused(bot, pull):
    body, before, wrong = report_body(bot.dispatch(L4), **SUITE), await traces(bot), {}
    tokens = {"none": (None, "Bearer")} | await forged_tokens(bot)
    for name, (token, word) in tokens.items():
        status, answer, headers = await post(bot, body, token)
        refused = (status, answer["error"]) == (401, "invalid_token") and "WWW-Authenticate" in headers
        if not refused or word not in answer["detail"]:
            wrong[name] = (status, answer)
    assert wrong == {}
    assert await traces(bot) == before
    status, answer, _ = await post(bot, body, None, Authorization=f"Basic {token_of(bot, L4)}")
    assert (status, answer["error"]) == (401, "invalid_token")
    assert (await post(bot, body, token_of(bot, L4, lifetime=-59)))[0] == 200  # a minute of leeway


@SQLITE
async def test_a_refused_token_never_appears_in_the_answer(bot, pull):
    for token in (token_of(bot, L4, lifetime=-61), token_of(bot, "stranger/repo")):
        _, answer, _ = await post(bot, report_body(bot.dispatch(L4), **SUITE), token)
        assert token.rpartition(".")[2] not in json.dumps(answer)


@SQLITE
async def test_a_token_for_one_installation_is_refused_by_another(settings, github, issuer, clock):
    """As docs/reporting.md has it: the audience is the address that the dispatch names."""
    own = replace(settings, oidc_audience=("https://ootbot.example.org/api/oot/callback",))
    own = replace(own, public_url="https://ootbot.example.org")
    async with running(own, github=github, issuer=issuer, app=github.app, clock=clock) as bot:
        await github.open_pull(UPSTREAM)
        await bot.settle()
        body, named = report_body(bot.dispatch(L4), **SUITE), bot.dispatch(L4).client_payload["callback_url"]
        for elsewhere in ("ootbot", "https://other.example.org/api/oot/callback"):
            status, answer, _ = await post(bot, body, token_of(bot, L4, audience=elsewhere))
            assert (status, answer["error"]) == (401, "invalid_token")
            assert named in answer["detail"]
        assert (await post(bot, body, token_of(bot, L4, audience=named)))[0] == 200


@SQLITE
async def test_without_the_issuers_keys_the_caller_is_asked_to_come_back(bot, github, issuer, pull):
    before = await traces(bot)
    issuer.outage = True
    for _ in range(3):
        status, answer, headers = await post(bot, report_body(bot.dispatch(L4), **SUITE), token_of(bot, L4))
        assert (status, answer["error"]) == (503, "issuer_unavailable")
        assert int(headers["Retry-After"]) > 0
    assert issuer.fetches == 1
    assert await traces(bot) == before
    issuer.outage = False
    bot.clock.advance(61)
    assert (await bot.report(bot.dispatch(L4)))[0] == 200


@SQLITE
async def test_keys_once_fetched_serve_for_a_day_while_the_issuer_is_down(bot, issuer, pull):
    assert (await bot.report(bot.dispatch(L4), job="first"))[0] == 200
    issuer.outage = True
    bot.clock.advance(23 * 3600)
    assert (await bot.report(bot.dispatch(L4), job="second"))[0] == 200
    bot.clock.advance(2 * 3600)
    assert (await bot.report(bot.dispatch(L4), job="third"))[0] == 503


@SQLITE
async def test_a_new_key_is_fetched_at_most_once_a_minute(bot, issuer, pull):
    assert (await bot.report(bot.dispatch(L4), job="old key"))[0] == 200
    bot.clock.advance(61)
    issuer.rotate()
    assert (await bot.report(bot.dispatch(L4), job="new key"))[0] == 200
    assert issuer.fetches == 2
    issuer.rotate(keep_old=False)
    for _ in range(5):
        status, answer = await bot.report(bot.dispatch(L4), job="newest key")
        assert (status, answer["error"]) == (503, "issuer_unavailable")
    assert issuer.fetches == 2
    bot.clock.advance(61)
    assert (await bot.report(bot.dispatch(L4), job="newest key"))[0] == 200
    assert issuer.fetches == 3


@SQLITE
async def test_a_stranger_with_made_up_key_ids_makes_no_rotation_lose_a_report(bot, issuer, pull):
    """The stranger uses up the one fetch a minute right before each rotation."""
    stranger = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    body = report_body(bot.dispatch(L4), **SUITE)
    for turn in range(3):
        bot.clock.advance(61)
        said = jwt.decode(token_of(bot, L4), options={"verify_signature": False})
        made_up = jwt.encode(said, stranger, algorithm="RS256", headers={"kid": f"made-up-{turn}"})
        status, answer, _ = await post(bot, body, made_up)
        assert (status, answer["error"]) == (401, "invalid_token")
        issuer.rotate(keep_old=False)
        bot.clock.advance(20)
        body["workflow"]["job_name"] = f"job {turn}"
        status, answer, headers = await post(bot, body, token_of(bot, L4))
        assert (status, answer["error"], headers["Retry-After"]) == (503, "issuer_unavailable", "40")
        bot.clock.advance(40)
        assert (await post(bot, body, token_of(bot, L4)))[0] == 200


@SQLITE
async def test_a_new_key_is_not_refused_for_good_while_its_issuer_is_away(bot, issuer, pull):
    assert (await bot.report(bot.dispatch(L4), job="old key"))[0] == 200
    issuer.rotate()
    issuer.outage = True
    bot.clock.advance(3601)
    status, answer = await bot.report(bot.dispatch(L4), job="new key")
    assert (status, answer["error"]) == (503, "issuer_unavailable")
    issuer.outage = False
    bot.clock.advance(61)
    assert (await bot.report(bot.dispatch(L4), job="new key"))[0] == 200


async def made_key(bot, repo, *more):
    code, out, err = await ootbot(bot, "keys", "add", repo, *more)
    assert code == 0, err
    return out.strip(), err


@pytest.mark.logic
async def test_a_static_key_reports_for_its_backend_until_it_is_revoked(bot, pull):
    key, warning = await made_key(bot, L2, "--note", "the old lab")
    assert warning == ""
    identifier = key.split("_")[1]
    assert (await bot.report(bot.dispatch(L2), token=key, run_id="build-7"))[0] == 200
    (row,) = await bot.rows("oot_workflow_job")
    assert (row["downstream_repo"], row["run_id"]) == (L2, "build-7")
    (kept,) = await bot.rows("oot_key")
    assert key.split("_")[2] not in str(kept)
    assert kept["used_at"] == bot.clock.now()

    listed = (await ootbot(bot, "keys", "list"))[1]
    assert identifier in listed
    assert "the old lab" in listed
    assert key.split("_")[2] not in listed

    assert (await ootbot(bot, "keys", "revoke", identifier))[0] == 0
    status, answer = await bot.report(bot.dispatch(L2), token=key, job="after")
    assert (status, answer["error"]) == (401, "invalid_token")
    assert (await ootbot(bot, "keys", "revoke", identifier))[0] == 1


@SQLITE
async def test_a_static_key_sends_nothing_of_runs_that_were_not_dispatched_unless_the_entry_says_so(
    bot, github
):
    commit = await github.push(UPSTREAM)
    key, _ = await made_key(bot, L2)
    headers = {"Authorization": f"Bearer {key}"}
    job = {"name": "CI", "job_name": "build", "run_id": "7", "status": "completed", "conclusion": "success"}
    nightly = {"event_type": "nightly", "delivery_id": commit, "workflow": job}
    named = {"kind": "junit", "delivery_id": commit, "event_type": "nightly", "run_id": "7", "workflow": "CI"}

    async def send():
        report = await bot.request("POST", "/api/oot/callback", json=nightly, headers=headers)
        file = await bot.request(
            "POST", "/api/oot/uploads", params=named | {"job": "build"}, data=b"<testsuite/>", headers=headers
        )
        return report, file

    for status, answer in await send():
        assert (status, answer["error"]) == (403, "forbidden")
        assert "`nightly` added to" in answer["detail"]
    assert await bot.rows("oot_workflow_job") == await bot.rows("ci_upload") == []
    await bot.list_backends(f"L2: [{{repo: {L2}, events: [pull_request, nightly]}}]")
    assert [status for status, _ in await send()] == [200, 202]


@SQLITE
async def test_a_static_key_is_good_for_l2_at_most_and_for_one_backend(bot, pull):
    for repo in (L3, L4):
        key, warning = await made_key(bot, repo)
        assert "L2" in warning
        status, answer = await bot.report(bot.dispatch(repo), token=key)
        assert (status, answer["error"]) == (403, "forbidden")
        assert "static key" in answer["detail"]
    key, _ = await made_key(bot, L2)
    status, answer = await bot.report(bot.dispatch(L4), token=key)  # as L2, whose dispatch this is not
    assert (status, answer["error"]) == (403, "forbidden")
    assert await bot.rows("oot_workflow_job") == []


@SQLITE
async def test_a_static_key_reports_at_l4_where_the_entry_says_so(bot, github):
    path = bot.context.settings.data_dir / "allowlist.yml"
    path.write_text(f"L4: {{tpu: {{repo: {L4}, static_key: allowed, confirm: false}}}}")
    await bot.wait(61)
    await github.open_pull(UPSTREAM)
    await bot.settle()
    key, _ = await made_key(bot, L4)
    assert (await bot.report(bot.dispatch(L4), token=key, run_id="build-7"))[0] == 200
    (row,) = await bot.rows("oot_workflow_job")
    assert row["flags"] == {"no_start": True, "static_key": True}


@SQLITE
async def test_a_key_that_is_nearly_right_is_no_key(bot, pull):
    key, _ = await made_key(bot, L2)
    prefix, identifier, secret = key.split("_")
    for wrong in (
        "ootk_", "ootk__", f"ootk_{identifier}", f"ootk_{identifier}_", f"ootk_{identifier}_{secret[:-1]}",
        f"ootk_{identifier}_{secret}0", f"ootk_{'0' * 12}_{secret}", f"ootk_%_{secret}", key.upper(), "ootk_" + "x" * 5000,
        f"{prefix}_{secret}_{identifier}",
    ):  # fmt: skip
        status, answer = await bot.report(bot.dispatch(L2), token=wrong)
        assert (status, answer["error"]) == (401, "invalid_token"), wrong
    assert (await bot.rows("oot_key"))[0]["used_at"] is None
    assert (await bot.report(bot.dispatch(L2), token=key))[0] == 200


@SQLITE
async def test_strangers_are_told_to_stop_by_address_and_listed_backends_get_through(bot, pull):
    most = bot.context.settings.refused_per_min
    tokens = [bot.issuer.mint(repository="stranger/repo", run_id="1"), "no token", "ootk_no_key"]
    answers = [await bot.report(bot.dispatch(L4), token=tokens[n % 3]) for n in range(most + 5)]
    assert {status for status, _ in answers[:most]} == {401, 403}
    assert {(status, answer["error"]) for status, answer in answers[most:]} == {(429, "rate_limited")}
    for _ in range(3):  # what a listed backend gets wrong is never counted
        assert (await bot.report(bot.dispatch(L4), conclusion="green"))[0] == 400
    assert (await bot.report(bot.dispatch(L4)))[0] == 200
    bot.clock.advance(61)
    assert (await bot.report(bot.dispatch(L4), token="no token"))[0] == 401


@SQLITE
async def test_the_command_line_reports_as_the_action_does(bot, pull, tmp_path):
    key, _ = await made_key(bot, L2)
    (tmp_path / "key.txt").write_text(key)
    (tmp_path / "event.json").write_text(json.dumps({"client_payload": bot.dispatch(L2).client_payload}))
    options = ["--event", str(tmp_path / "event.json"), "--token-file", str(tmp_path / "key.txt"), "--deadline", "20",
            "--workflow-name", "lab", "--job-name", "test", "--run-id", "build-77"]  # fmt: skip
    for status in (["--status", "in_progress"], ["--status", "completed", "--conclusion", "failure"]):
        code, out, err = await ootbot(bot, "report", *status, *options)
        assert code == 0, err
        assert "took the report" in out
    (row,) = await bot.rows("oot_workflow_job")
    assert (row["workflow_name"], row["run_id"], row["conclusion"]) == ("lab", "build-77", "failure")
    code, _, err = await ootbot(bot, "report", "--status", "completed", "--conclusion", "success", *options)
    assert code == 1
    assert "409" in err
