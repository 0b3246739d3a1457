"""Which OpenID Connect tokens are believed, and by which keys of their issuer: rotated, revoked, out of reach?"""

import asyncio
import contextlib
import hashlib
import hmac
import json

import aiohttp
import jwt
import pytest
from aiohttp import web
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from prometheus_client import REGISTRY

from bot.core.errors import Misconfigured, Rejected
from bot.core.setting_types import IssuerConfig, issuers
from bot.core.settings_loading import load
from bot.oot.reports.oidc import Verifier
from tests.harness import UPSTREAM
from tests.oot.reports.reporting import encoded

REPO = "org/tpu-backend"


AUDIENCES = ("ootbot", "ootbot-staging")


PROJECT, PIPELINE = "3a2f5b1c-7d4e-4f6a-9b8c-0d1e2f3a4b5c", "acme/device-ci"


def configured(url: str) -> tuple[IssuerConfig, ...]:
    """Every kind of issuer config/issuers.toml knows, moved to loopback."""
    keys = {"jwks_url": f"{url}/.well-known/jwks"}
    return issuers(json.dumps([
        {"template": "github-actions", "issuer": url},
        {"template": "github-enterprise", "issuer": f"{url}/acme"} | keys,
        {"template": "github-enterprise-server", "issuer": f"{url}/_services/token"} | keys,
        {"template": "gitlab", "issuer": f"{url}/gitlab", "repositories": {
            "hardware/npu/ci": REPO,
            "hardware/tpu": {"repository": "org/tpu", "required_claims": {"ref": "main", "tier": "7"}},
        }} | keys,
        {"template": "circleci", "issuer": f"{url}/org/0f1e", "repositories": {PROJECT: REPO}} | keys,
        {"template": "buildkite", "issuer": f"{url}/buildkite", "repositories": {PIPELINE: REPO}} | keys,
        {"issuer": f"{url}/pinned", "repository_claim": "repository", "audiences": ["pinned"],
         "required_claims": {"repository_owner_id": "600100", "ssh-rerun": "false", "tier": "7"}} | keys,
        {"issuer": f"{url}/lists", "repository_claim": "repository",
         "required_claims": {"pipeline_id": ["0190f3b5-a", "0190f3b5-b"]}} | keys,
    ]))  # fmt: skip


class Maker:
    """Makes tokens, honest ones and others, with the issuer's own key."""

    def __init__(self, issuer, clock):
        self.issuer, self.now = issuer, clock.now() // 1000
        self.key = issuer._signing
        self.honest = self()

    def __call__(self, at="", **claims):
        wanted = {"repository": REPO, "run_id": "900", "run_attempt": "2"} | claims
        return self.issuer.mint(**({"iss": self.issuer.url + at} if at else {}), **wanted)

    def said(self, token=None):
        return jwt.decode(token or self.honest, options={"verify_signature": False})

    def signed(self, claims=None, *, key=None, algorithm="RS256", **header):
        return jwt.encode(
            claims or self.said(),
            key or self.key.private,
            algorithm=algorithm,
            headers={"kid": self.key.kid} | header,
        )

    def raw(self, header, payload):
        """A token of any header and payload, correctly signed by the issuer's key."""
        text = f"{encoded(header)}.{encoded(payload)}"
        signature = jwt.algorithms.RSAAlgorithm(jwt.algorithms.RSAAlgorithm.SHA256).sign(
            text.encode(), self.key.private
        )
        return f"{text}.{encoded(signature)}"

    def payload(self, text):
        return self.raw({"alg": "RS256", "kid": self.key.kid}, text)


@pytest.fixture
async def verifier(issuer, clock):
    async with aiohttp.ClientSession() as http:
        yield Verifier(configured(issuer.url), audiences=AUDIENCES, http=http, clock=clock)


def believed(make) -> dict[str, tuple]:
    """name: a token, and what it must be taken to say."""
    run = {"repository": REPO, "run_id": "900", "run_attempt": 2}
    gitlab = {"project_path": "hardware/npu/ci", "pipeline_id": "455", "job_id": "1"}
    circle = {"oidc.circleci.com/project-id": PROJECT}
    kite = {"organization_slug": "acme", "pipeline_slug": "device-ci"}
    pins = {"audience": "pinned", "ssh-rerun": False, "tier": 7}
    return {
        "as GitHub signs it": (make(), run | {"repository_id": "700100", "check_run_id": "9001"}),
        "numbers instead of texts": (make.signed(make.said() | {"run_id": 900, "run_attempt": 2}), run),
        "without nbf": (make(nbf=None), run),
        "without jti": (make(jti=None), run),
        "without run_id": (make.signed({k: v for k, v in make.said().items() if k != "run_id"}), {"run_id": None}),
        "an empty run_id": (make.signed(make.said() | {"run_id": ""}), {"run_id": None}),
        "without run_attempt": (
            make.signed({k: v for k, v in make.said().items() if k != "run_attempt"}), {"run_attempt": None}),
        "without check_run_id": (make(check_run_id=None), {"check_run_id": None}),
        "without repository_id": (
            make.signed({k: v for k, v in make.said().items() if k != "repository_id"}), {"repository_id": None}),
        "a run_id that is a UUID": (make(run_id="8d0c-41"), {"run_id": "8d0c-41"}),
        "claims nobody knows": (make(environment={"a": [1]}, groups=["x"]), run),
        "expired within the leeway": (make(lifetime=-59), run),
        "issued within the leeway": (make(iat=make.now + 59, exp=make.now + 300), run),
        "good from within the leeway": (make(nbf=make.now + 59), run),
        "a quarter of an hour": (make(lifetime=900), run),
        "times with fractions": (make(exp=make.now + 300.5, iat=make.now - 0.5), run),
        "the second audience": (make(audience="ootbot-staging"), run),
        "a list of our audience": (make(aud=["ootbot"]), run),
        "a subject with ids": (make(sub=f"repo:org@1/{REPO}@2:ref:refs/heads/main"), run),
        "a customised subject": (make(sub="anything"), run),
        "a repository in capitals": (make(repository=REPO.upper()), {"repository": REPO.upper()}),
        "an enterprise's own issuer": (make("/acme"), run),
        "GitHub Enterprise Server": (make("/_services/token", check_run_id=None), run),
        "GitHub Enterprise Server has no check runs": (make("/_services/token"), {"check_run_id": None}),
        "GitLab": (make("/gitlab", **gitlab), {"repository": REPO, "run_id": "455", "run_attempt": None}),
        "GitLab's own claims only": (make("/gitlab", repository="evil/evil", **gitlab), {"repository": REPO}),
        "GitLab with claims of its own": (
            make("/gitlab", **gitlab | {"project_path": "hardware/tpu"}, ref="main", tier=7), {"repository": "org/tpu"}),
        "GitLab for six hours": (make("/gitlab", lifetime=21600, **gitlab), {"run_id": "455"}),
        "CircleCI": (make("/org/0f1e", **circle), {"repository": REPO, "run_id": None, "assigned": True}),
        "CircleCI names its workflow": (
            make("/org/0f1e", **circle, **{"oidc.circleci.com/workflow-id": "2b3c"}), {"run_id": "2b3c"}),
        "CircleCI for an hour": (make("/org/0f1e", lifetime=3600, **circle), {"repository": REPO}),
        "Buildkite": (make("/buildkite", **kite), {"repository": REPO, "run_id": None, "repository_id": None}),
        "Buildkite with its build": (make("/buildkite", build_id="0184-99", **kite), {"run_id": "0184-99"}),
        "pinned claims of every type": (make("/pinned", **pins), run),
    }  # fmt: skip


def refused(make) -> dict[str, tuple]:
    """name: a token, status and code, and a word of the reason."""
    no, gone, strange = (401, "invalid_token"), (403, "forbidden"), (403, "not_listed")
    header, claims, signature = make.honest.split(".")
    other = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    public = make.key.private.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    confused = f"{encoded({'alg': 'HS256', 'typ': 'JWT', 'kid': make.key.kid})}.{claims}"
    own_jwk = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(other.public_key()))
    text = json.dumps(make.said())
    gitlab = {"project_path": "hardware/npu/ci", "pipeline_id": "455"}
    kite = {"organization_slug": "acme", "pipeline_slug": "device-ci"}
    pins = {"audience": "pinned", "ssh-rerun": False, "tier": 7}
    return {
        "nothing": ("", no, "Bearer"),
        "a word": ("abc", no, "not a JWT"),
        "one dot": ("a.b", no, "not a JWT"),
        "empty parts": ("..", no, "not a JWT"),
        "four parts": (make.honest + ".x", no, "not a JWT"),
        "letters beyond ASCII": ("é.é.é", no, "not a JWT"),
        "lone surrogates": ("\udcff.\udcff.\udcff", no, "not a JWT"),
        "more than 8 KiB": (make.honest + "A" * 8192, no, "Bearer"),
        "a header that is no JSON": (f"{encoded(b'{')}.{claims}.{signature}", no, "not a JWT"),
        "a header that is a list": (f"{encoded([])}.{claims}.{signature}", no, "not a JWT"),
        "claims that are no JSON": (make.payload(b"{"), no, "not a JWT"),
        "claims that are a list": (make.payload([1]), no, "not a JWT"),
        "claims nested deeply": (make.payload(b"[" * 5000), no, "not a JWT"),
        "no algorithm": (f"{encoded({'kid': make.key.kid})}.{claims}.{signature}", no, "RS256"),
        "alg none": (f"{encoded({'alg': 'none', 'kid': make.key.kid})}.{claims}.", no, "RS256"),
        "alg NONE, signed": (f"{encoded({'alg': 'NONE', 'kid': make.key.kid})}.{claims}.{signature}", no, "RS256"),
        "HS256 with the public key": (
            f"{confused}.{encoded(hmac.new(public, confused.encode(), hashlib.sha256).digest())}", no, "RS256"),
        "RS512": (make.signed(algorithm="RS512"), no, "RS256"),
        "PS256": (make.signed(algorithm="PS256"), no, "RS256"),
        "ES256": (make.signed(key=ec.generate_private_key(ec.SECP256R1()), algorithm="ES256"), no, "RS256"),
        "no signature": (f"{header}.{claims}.", no, "not valid"),
        "half a signature": (make.honest[:-40], no, "not valid"),
        "the signature of another token": (f"{header}.{claims}.{make(run_id='1').rpartition('.')[2]}", no, "not valid"),
        "claims changed": (f"{header}.{encoded(make.said() | {'repository': 'evil/evil'})}.{signature}", no, "not valid"),
        "a stranger's key": (make.signed(key=other), no, "not valid"),
        "a key brought along": (make.signed(key=other, jwk=own_jwk), no, "not valid"),
        "a key id nobody publishes": (make.signed(kid="unknown"), no, "does not publish"),
        "no key id": (make.raw({"alg": "RS256"}, make.said()), no, "does not publish"),
        "a key id that is a list": (make.raw({"alg": "RS256", "kid": [make.key.kid]}, make.said()), no, "not publish"),
        "a critical extension": (make.signed(crit=["exp2"], exp2=1), no, "not valid"),
        "expired": (make(lifetime=-61), no, "expired"),
        "issued tomorrow": (make(iat=make.now + 86400, exp=make.now + 86700), no, "not valid yet"),
        "good from tomorrow": (make(nbf=make.now + 86400), no, "not valid yet"),
        "longer than a quarter of an hour": (make(lifetime=901), no, "lives longer"),
        "thirty years": (make(lifetime=30 * 365 * 86400), no, "lives longer"),
        "without exp": (make(exp=None), no, "exp"),
        "without iat": (make(iat=None), no, "iat"),
        "without aud": (make(aud=None), no, "aud"),
        "without iss": (make(iss=None), no, "issuer"),
        "exp is a text": (make(exp="tomorrow"), no, "exp"),
        "exp is true": (make(exp=True), no, "exp"),
        "exp is not a number": (make.payload(text.replace(str(make.said()["exp"]), "NaN").encode()), no, ""),
        "exp is infinite": (make.payload(text.replace(str(make.said()["exp"]), "Infinity").encode()), no, ""),
        "exp is beyond every number": (make.payload(text.replace(str(make.said()["exp"]), "1e999").encode()), no, ""),
        "iat is a text": (make(iat="now"), no, "iat"),
        "nbf is a list": (make(nbf=[1]), no, "nbf"),
        "another audience": (make(audience="https://github.com/org"), no, "ootbot"),
        "an audience in capitals": (make(audience="OOTBOT"), no, "audience"),
        "an audience that begins like ours": (make(audience="ootbot.example"), no, "audience"),
        "a list of audiences": (make(aud=["ootbot", "other"]), no, "audience"),
        "our audience twice": (make(aud=["ootbot", "ootbot"]), no, "audience"),
        "a list in a list": (make(aud=[["ootbot"]]), no, "audience"),
        "an empty list of audiences": (make(aud=[]), no, "aud"),
        "an empty audience": (make(audience=""), no, "audience"),
        "another issuer": (make(iss="http://127.0.0.1:9"), no, "issuer"),
        "the issuer with a slash": (make("/"), no, "issuer"),
        "an issuer below ours": (make("/acme/evil"), no, "issuer"),
        "the issuer in capitals": (make(iss=make.issuer.url.upper()), no, "issuer"),
        "a list of issuers": (make.raw({"alg": "RS256", "kid": make.key.kid}, make.said() | {"iss": [make.issuer.url]}),
                              no, "issuer"),
        "without repository": (make.signed(
            {k: v for k, v in make.said().items() if k != "repository"}), no, "repository"),
        "an empty repository": (make.signed(make.said() | {"repository": ""}), no, "repository"),
        "a list of repositories": (make.signed(make.said() | {"repository": [REPO]}), no, "repository"),
        "a repository that is a number": (make.signed(make.said() | {"repository": 700100}), no, "repository"),
        "run_id is an object": (make.signed(make.said() | {"run_id": {"id": "900"}}), no, "run_id"),
        "run_id is true": (make.signed(make.said() | {"run_id": True}), no, "run_id"),
        "run_id is a fraction": (make.signed(make.said() | {"run_id": 900.5}), no, "run_id"),
        "run_attempt is a word": (make(run_attempt="second"), no, "run_attempt"),
        "run_attempt is negative": (make(run_attempt="-1"), no, "run_attempt"),
        "run_attempt in other digits": (make(run_attempt="٢"), no, "run_attempt"),
        "GitLab for longer than six hours": (make("/gitlab", lifetime=21601, **gitlab), no, "lives longer"),
        "a claim required of this project only": (
            make("/gitlab", **gitlab | {"project_path": "hardware/tpu"}, ref="fix", tier=7), gone, "ref"),
        "a project's own claim is missing": (
            make("/gitlab", **gitlab | {"project_path": "hardware/tpu"}, ref="main"), gone, "tier"),
        "GitLab without a project": (make("/gitlab", pipeline_id="455"), no, "project_path"),
        "another project of GitLab": (make("/gitlab", project_path="hardware/npu"), strange, "hardware/npu"),
        "another project of CircleCI": (make("/org/0f1e", **{"oidc.circleci.com/project-id": "0"}), strange, "0"),
        "another organisation of CircleCI": (make("/org/evil", **{"oidc.circleci.com/project-id": PROJECT}), no, "issuer"),
        "the pipeline of another organisation": (make("/buildkite", **kite | {"organization_slug": "evil"}), strange, "evil"),
        "a pipeline that names the organisation, too": (
            make("/buildkite", organization_slug="", pipeline_slug=PIPELINE), no, "organization_slug"),
        "an organisation with a slash": (
            make("/buildkite", organization_slug="acme/device-ci", pipeline_slug="x"), no, "organization_slug"),
        "a required claim is missing": (make("/pinned", **pins | {"tier": None}), gone, "tier"),
        "a required claim differs": (make("/pinned", **pins, repository_owner_id="1"), gone, "repository_owner_id"),
        "a required claim is a list": (make("/pinned", **pins | {"tier": ["7"]}), gone, "tier"),
        "a required claim is the other truth": (make("/pinned", **pins | {"ssh-rerun": True}), gone, "ssh-rerun"),
        "our general audience at an issuer with its own": (make("/pinned", **pins | {"audience": "ootbot"}), no, "pinned"),
    }  # fmt: skip


async def test_every_token_a_ci_really_makes_is_believed(issuer, clock, verifier):
    wrong = {}
    for name, (token, expected) in believed(Maker(issuer, clock)).items():
        try:
            claims = await verifier.verify(token)
        except Rejected as refusal:
            wrong[name] = refusal.detail
            continue
        found = {member: getattr(claims, member) for member in expected}
        if found != expected:
            wrong[name] = found
    assert wrong == {}


async def test_u9_no_other_token_is_believed(issuer, clock, verifier):
    cases, wrong = refused(Maker(issuer, clock)), {}
    for name, (token, expected, word) in cases.items():
        clock.advance(61 if "nobody publishes" in name else 0)  # its issuer may be asked again
        try:
            wrong[name] = await verifier.verify(token)
        except Rejected as refusal:
            right = (refusal.status, refusal.code) == expected and word in refusal.detail
            if not right or (len(token) > 100 and token in refusal.detail):
                wrong[name] = (refusal.status, refusal.code, refusal.detail)
    assert wrong == {}
    assert len(cases) + len(believed(Maker(issuer, clock))) >= 60


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
