"""OpenID Connect tokens: which are believed."""

from __future__ import annotations

import hashlib
import hmac
import json

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from bot.core.errors import Rejected
from tests.oot.reports.tokens_made import PIPELINE, PROJECT, REPO, Maker, encoded


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
