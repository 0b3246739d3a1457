"""Whose token is believed? Only what a trusted issuer signed for us, just now; without its keys no token is believed."""

import hashlib
import hmac
import json

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.harness import L3, L4, UPSTREAM, replace, report_body, running
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
