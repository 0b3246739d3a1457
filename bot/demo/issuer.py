"""An OpenID provider like that of GitHub Actions, which signs the simulated CI's tokens."""

from __future__ import annotations

import json
import secrets
from typing import Any

import jwt
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

from bot.core.clock import Clock, SystemClock

LIFETIME = 300  # seconds for which a token is valid
BACKDATED = 600  # seconds from `nbf` to `iat`
COMMIT = "0" * 40
DISCOVERY = "/.well-known/openid-configuration"
KEYS = "/.well-known/jwks"
TOKENS = "/_actions/token"


class Issuer:
    """An OpenID provider whose tokens tell the bot which repository and run a report is from.

    While `outage` is set, discovery and keys answer 503; `mint` and the runner's token endpoint keep working, as
    an outage does not affect a job that already has its token. `fetches` counts the requests for the keys, failed
    ones included.
    """

    def __init__(self, *, clock: Clock | None = None) -> None:
        self.url = ""
        self.outage = False
        self.fetches = 0
        self._clock = clock or SystemClock()
        self._signing = _Key()
        self._published = [self._signing]
        self._jobs: dict[str, dict[str, Any]] = {}  # request token -> claims
        self._runner: web.AppRunner | None = None

    async def start(self, port: int = 0) -> None:
        """Listen on 127.0.0.1; port 0 picks a free one."""
        app = web.Application()
        self.add_to(app)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", port).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    def add_to(self, app: web.Application, path: str = "") -> None:
        """Add the routes to an application below a path; `url` must then be set to that address."""
        app.router.add_get(path + DISCOVERY, self._discovery)
        app.router.add_get(path + KEYS, self._keys)
        app.router.add_get(path + TOKENS, self._token)

    async def stop(self) -> None:
        """Stop listening."""
        if self._runner:
            await self._runner.cleanup()

    def rotate(self, *, keep_old: bool = True) -> None:
        """Sign with a new key from now on; with `keep_old` the previous keys stay published."""
        self._signing = _Key()
        self._published = [self._signing, *(self._published if keep_old else [])]

    def mint(
        self,
        *,
        repository: str,
        repository_id: str | int = "700100",
        run_id: str | int,
        run_attempt: str | int = 1,
        audience: str = "ootbot",
        lifetime: int = LIFETIME,
        **claims: Any,
    ) -> str:
        """Return a signed token for a job of that repository.

        `lifetime` is in seconds and may be negative. Other claims are added or replaced by name; None leaves one
        out.
        """
        now = self._clock.now() // 1000
        standard = {
            "iss": self.url,
            "aud": audience,
            "iat": now,
            "nbf": now - BACKDATED,
            "exp": now + lifetime,
            "jti": secrets.token_hex(16),
            **_job_claims(repository, str(repository_id)),
            "run_id": str(run_id),
            "run_attempt": str(run_attempt),
        }
        merged = {name: value for name, value in (standard | claims).items() if value is not None}
        headers = {"kid": self._signing.kid}
        return jwt.encode(merged, self._signing.private, algorithm="RS256", headers=headers)

    def request_env(self, **claims: Any) -> dict[str, str]:
        """Return the environment variables with which a job requests tokens.

        `claims` are those of `mint`; the job chooses the audience when it requests a token.
        """
        request_token = secrets.token_urlsafe(32)
        self._jobs[request_token] = claims
        return {
            "ACTIONS_ID_TOKEN_REQUEST_URL": f"{self.url}{TOKENS}?api-version=2.0",
            "ACTIONS_ID_TOKEN_REQUEST_TOKEN": request_token,
        }

    async def _discovery(self, _request: web.Request) -> web.Response:
        if self.outage:
            return _unavailable()
        return web.json_response(
            {
                "issuer": self.url,
                "jwks_uri": f"{self.url}{KEYS}",
                "response_types_supported": ["id_token"],
                "subject_types_supported": ["public"],
                "id_token_signing_alg_values_supported": ["RS256"],
            }
        )

    async def _keys(self, _request: web.Request) -> web.Response:
        self.fetches += 1
        if self.outage:
            return _unavailable()
        return web.json_response({"keys": [key.public for key in self._published]})

    async def _token(self, request: web.Request) -> web.Response:
        scheme, _, request_token = request.headers.get("Authorization", "").partition(" ")
        claims = self._jobs.get(request_token)
        if scheme.lower() != "bearer" or claims is None:
            return web.json_response({"message": "no such job"}, status=401)
        owner = claims["repository"].partition("/")[0]
        audience = request.query.get("audience") or f"https://github.com/{owner}"
        return web.json_response({"value": self.mint(**(claims | {"audience": audience}))})


class _Key:
    """A signing key and its published form."""

    def __init__(self) -> None:
        self.kid = secrets.token_hex(16)
        self.private = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        numbers = json.loads(RSAAlgorithm.to_jwk(self.private.public_key()))
        self.public = {
            "kty": "RSA",
            "alg": "RS256",
            "use": "sig",
            "kid": self.kid,
            "n": numbers["n"],
            "e": numbers["e"],
        }


def _unavailable() -> web.Response:
    return web.json_response({"message": "temporarily unavailable"}, status=503)


def _job_claims(repository: str, repository_id: str) -> dict[str, str]:
    """Return GitHub's claims for a job that a repository_dispatch started on the default branch."""
    owner = repository.partition("/")[0]
    workflow = f"{repository}/.github/workflows/ci.yml@refs/heads/main"
    return {
        "sub": f"repo:{repository}:ref:refs/heads/main",
        "actor": "octocat",
        "actor_id": "583231",
        "base_ref": "",
        "check_run_id": "9001",
        "event_name": "repository_dispatch",
        "head_ref": "",
        "job_workflow_ref": workflow,
        "job_workflow_sha": COMMIT,
        "ref": "refs/heads/main",
        "ref_protected": "true",
        "ref_type": "branch",
        "repository": repository,
        "repository_id": repository_id,
        "repository_owner": owner,
        "repository_owner_id": "600100",
        "repository_visibility": "public",
        "run_number": "1",
        "runner_environment": "github-hosted",
        "sha": COMMIT,
        "workflow": "CI",
        "workflow_ref": workflow,
        "workflow_sha": COMMIT,
    }
