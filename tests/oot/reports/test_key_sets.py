"""The keys of an OpenID Connect issuer: rotated, revoked, out of reach, broken."""

from __future__ import annotations

import asyncio
import contextlib
import json

import aiohttp
import jwt
import pytest
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import rsa
from prometheus_client import REGISTRY

from bot.core.errors import Misconfigured, Rejected
from bot.core.setting_types import IssuerConfig
from bot.core.settings_loading import load
from bot.oot.reports.oidc import Verifier
from tests.harness import UPSTREAM
from tests.oot.reports.tokens_made import AUDIENCES, REPO, Maker


async def test_after_a_rotation_both_keys_are_believed_while_both_are_published(issuer, clock, verifier):
    old = Maker(issuer, clock)()
    await verifier.verify(old)
    clock.advance(61)
    issuer.rotate()
    await verifier.verify(Maker(issuer, clock)())
    await verifier.verify(old)
    assert issuer.fetches == 2


async def test_a_key_that_was_taken_back_is_believed_for_an_hour_at_most(issuer, clock, verifier):
    withdrawn = issuer._signing
    await verifier.verify(Maker(issuer, clock)())
    issuer.rotate(keep_old=False)
    clock.advance(3601)
    make = Maker(issuer, clock)
    with pytest.raises(Rejected, match="does not publish"):
        await verifier.verify(make.signed(key=withdrawn.private, kid=withdrawn.kid))
    assert issuer.fetches == 2
    await verifier.verify(make())


async def test_a_clock_that_was_ahead_and_is_put_right_keeps_no_keys_away(issuer, clock, verifier):
    clock.advance(8 * 3600)
    await verifier.verify(Maker(issuer, clock)())
    clock.advance(-8 * 3600)
    issuer.rotate()
    await verifier.verify(Maker(issuer, clock)())
    assert issuer.fetches == 2
    with pytest.raises(Rejected, match="send it again in 60 s"):
        await verifier.verify(Maker(issuer, clock).signed(kid="unknown"))
    assert issuer.fetches == 2


async def test_many_callers_with_a_new_key_wait_for_one_fetch(issuer, clock, verifier):
    tokens = [Maker(issuer, clock)() for _ in range(50)]
    await asyncio.gather(*(verifier.verify(token) for token in tokens))
    assert issuer.fetches == 1
    for _ in range(50):
        with pytest.raises(Rejected) as refusal:
            await verifier.verify(Maker(issuer, clock).signed(kid="unknown"))
        assert (refusal.value.status, refusal.value.headers) == (503, {"Retry-After": "60"})
    assert issuer.fetches == 1


async def test_an_outage_is_asked_about_once_a_minute_and_old_keys_serve_for_a_day(issuer, clock, verifier):
    await verifier.verify(Maker(issuer, clock)())
    issuer.outage = True
    for hour in range(1, 24):
        clock.advance(3600)
        for _ in range(3):
            await verifier.verify(Maker(issuer, clock)())
        assert issuer.fetches <= 1 + hour
    clock.advance(3601)
    with pytest.raises(Rejected) as refusal:
        await verifier.verify(Maker(issuer, clock)())
    assert (refusal.value.status, refusal.value.code) == (503, "issuer_unavailable")
    issuer.outage = False
    clock.advance(61)
    await verifier.verify(Maker(issuer, clock)())


KEY_SETS = {
    "empty": b"",
    "no JSON": b"<html>",
    "a list": b"[]",
    "no keys": b'{"keys": []}',
    "keys that are none": b'{"keys": [1, null, "x", {}, {"kty": "RSA"}, {"kty": "RSA", "kid": "a"}]}',
    "nested": b'{"keys": ' + b"[" * 100_000,
    "larger than any key set": b'{"keys": [], "x": "' + b"x" * 2 * 1024 * 1024 + b'"}',
}


@contextlib.asynccontextmanager
async def publishing(answers):
    """An issuer of nothing but key sets, one after the other, the last one for ever."""

    async def keys(_request):
        body = answers.pop(0) if len(answers) > 1 else answers[0]
        return web.Response(body=body, content_type="application/json")

    app = web.Application()
    app.router.add_get("/keys", keys)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield "http://127.0.0.1:{}/keys".format(*runner.addresses[0][1:])
    finally:
        await runner.cleanup()


def fetches(issuer, outcome):
    """How often this issuer's keys were fetched, as /metrics shows it."""
    labels = {"issuer": issuer.url, "outcome": outcome}
    return REGISTRY.get_sample_value("ootbot_issuer_key_fetches_total", labels) or 0


@pytest.mark.parametrize(
    ("pipeline", "good"), [("0190f3b5-a", True), ("0190f3b5-b", True), ("0190f3b5-c", False)]
)
async def test_a_required_claim_may_have_one_of_several_values(verifier, issuer, clock, pipeline, good):
    token = Maker(issuer, clock)("/lists", pipeline_id=pipeline)
    if good:
        assert (await verifier.verify(token)).repository == REPO
        return
    with pytest.raises(Rejected) as caught:
        await verifier.verify(token)
    assert (caught.value.status, caught.value.code) == (403, "forbidden")


@pytest.mark.parametrize("name", KEY_SETS)
async def test_a_broken_key_set_is_no_key_set_and_breaks_nothing(issuer, clock, name):
    make = Maker(issuer, clock)
    before = {one: fetches(issuer, one) for one in ("failed", "ok")}
    good = json.dumps({"keys": [make.key.public]}).encode()
    async with publishing([KEY_SETS[name], good, KEY_SETS[name]]) as url, aiohttp.ClientSession() as http:
        config = IssuerConfig(issuer=issuer.url, repository_claim="repository", jwks_url=url)
        verifier = Verifier([config], audiences=AUDIENCES, http=http, clock=clock)
        with pytest.raises(Rejected) as refusal:
            await verifier.verify(make())
        assert refusal.value.code == "issuer_unavailable"
        clock.advance(61)
        await verifier.verify(make())
        clock.advance(3601)
        await verifier.verify(Maker(issuer, clock)())
        counted = {one: fetches(issuer, one) - count for one, count in before.items()}
        assert counted == {"failed": 2, "ok": 1}


async def test_weak_keys_and_keys_for_other_uses_are_left_out(issuer, clock):
    make, weak = Maker(issuer, clock), rsa.generate_private_key(public_exponent=65537, key_size=1024)
    short = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(weak.public_key()))
    listed = [short | {"kid": "weak"}, make.key.public | {"kid": "enc", "use": "enc"}, make.key.public]
    async with publishing([json.dumps({"keys": listed}).encode()]) as url, aiohttp.ClientSession() as http:
        config = IssuerConfig(issuer=issuer.url, repository_claim="repository", jwks_url=url)
        verifier = Verifier([config], audiences=AUDIENCES, http=http, clock=clock)
        await verifier.verify(make())
        for kid in ("weak", "enc"):
            clock.advance(61)
            with pytest.raises(Rejected, match="does not publish"):
                await verifier.verify(make.signed(kid=kid))


GITLAB = {"template": "gitlab", "repositories": {"a/b": "org/a"}}


MISCONFIGURED = {
    "nobody": ("[]", "empty"),
    "no list": ('{"issuer": "https://ci.example"}', "no issuer"),
    "no JSON": ("[{]", "not a list of issuers"),
    "numbers": ("[1]", "not a list of issuers"),
    "an unknown name": ("github-actions,jenkins", "jenkins"),
    "an unknown template": ('[{"template": "jenkins"}]', "jenkins"),
    "a template that is a number": ('[{"template": 1}]', "1"),
    "a placeholder": ("github-enterprise", "{enterprise}"),
    "no repositories": ("gitlab", "repositories"),
    "an empty mapping": (json.dumps([GITLAB | {"repositories": {}}]), "repositories"),
    "a mapping to a number": (json.dumps([GITLAB | {"repositories": {"a/b": 1}}]), "str"),
    "a mapping to no repository": (json.dumps([GITLAB | {"repositories": {"a/b": "org"}}]), "owner/name"),
    "a list instead of a mapping": (json.dumps([GITLAB | {"repositories": ["org/a"]}]), "object"),
    "a mapping and a claim": (json.dumps([GITLAB | {"repository_claim": "repository"}]), "either"),
    "too short an id": (
        '[{"template": "buildkite", "repositories": {"device-ci": "org/a"}}]', "organization_slug/pipeline_slug"),
    "an assigned repository without a name": (
        json.dumps([GITLAB | {"repositories": {"a/b": {"required_claims": {"ref": "x"}}}}]), "repository"),
    "an assigned claim without a text": (
        json.dumps([GITLAB | {"repositories": {"a/b": {"repository": "o/a", "required_claims": {"ref": ""}}}}]), "required"),
    "an assigned claim that is a number": (
        json.dumps([GITLAB | {"repositories": {"a/b": {"repository": "o/a", "required_claims": {"ref": 1}}}}]), "str"),
    "an assigned repository that is a number": (json.dumps([GITLAB | {"repositories": {"a/b": 1}}]), "int"),
    "an assigned repository with a misspelled key": (
        json.dumps([GITLAB | {"repositories": {"a/b": {"repository": "o/a", "required_claim": {}}}}]), "required_claim"),
    "required claims in a list": ('[{"template": "github-actions", "required_claims": ["ref"]}]', "object"),
    "an empty list of values": (
        '[{"template": "github-actions", "required_claims": {"ref": []}}]', "required_claims"),
    "an empty value in a list": (
        '[{"template": "github-actions", "required_claims": {"ref": ["main", ""]}}]', "required_claims"),
    "a required number": ('[{"template": "github-actions", "required_claims": {"tier": 7}}]', "str"),
    "a required nothing": ('[{"template": "github-actions", "required_claims": {"ref": ""}}]', "required_claims"),
    "required claims that are null": ('[{"template": "github-actions", "required_claims": null}]', "object"),
    "a misspelled key": ('[{"template": "github-actions", "required_claim": {"ref": "x"}}]', "required_claim"),
    "a text of audiences": ('[{"template": "github-actions", "audiences": "ootbot"}]', "array"),
    "an empty audience": ('[{"template": "github-actions", "audiences": [""]}]', "audiences"),
    "a life without end": ('[{"template": "github-actions", "longest_life": 1000000}]', "longest_life"),
    "plain http": ('[{"issuer": "http://ci.example", "repository_claim": "r"}]', "https"),
    "keys by plain http": ('[{"template": "github-actions", "jwks_url": "http://ci.example/keys"}]', "https"),
    "the same issuer twice": ('["github-actions", "github-actions"]', "twice"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISCONFIGURED)
def test_issuers_that_would_let_in_others_than_meant_stop_the_start(name):
    text, word = MISCONFIGURED[name]
    environ = {"OOTBOT_OIDC_ISSUERS": text, "OOTBOT_APP_ID": "1", "OOTBOT_WEBHOOK_SECRET": "x" * 16,
               "OOTBOT_PRIVATE_KEY": "-----BEGIN PRIVATE KEY-----", "OOTBOT_UPSTREAM_REPO": UPSTREAM,
               "OOTBOT_ALLOWLIST": "a.yml"}  # fmt: skip
    with pytest.raises(Misconfigured) as error:
        load(environ)
    (problem,) = error.value.problems
    assert "OOTBOT_OIDC_ISSUERS" in problem
    assert word in problem
