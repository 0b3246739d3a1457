"""Issuers of OpenID Connect tokens, as configured."""

from __future__ import annotations

import base64
import json

import jwt

from bot.core.setting_types import IssuerConfig, issuers

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


def encoded(part) -> str:
    raw = part if isinstance(part, bytes) else json.dumps(part).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


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
