"""A bot that collects reports of tests, and runs that leave some."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest

from bot.evidence.collect import uploads
from bot.jobs.settings import CollectSettings
from tests import harness
from tests.harness import UPSTREAM


@pytest.fixture
def options():
    """Options of features, by their class."""
    return {CollectSettings: CollectSettings()}


@pytest.fixture
async def bot(settings, options, github, issuer, clock):
    chosen = replace(settings, of_features={**settings.of_features, **options})
    async with harness.running(
        chosen, github=github, issuer=issuer, app=github.app, clock=clock, begun=True
    ) as made:
        # a call with a fresh token that is refused is repeated, as not all of GitHub's servers may know it
        await made.context.github.tokens.get(UPSTREAM, {"actions": "read"})
        clock.advance(10)
        yield made


@pytest.fixture
def upload(bot):
    """Uploads a report for the newest dispatch to a backend."""

    async def send(backend, body, *, kind="junit", run_id="900", job="npu"):
        payload = bot.dispatch(backend).client_payload
        token = bot.issuer.mint(repository=backend, run_id=run_id, run_attempt=1)
        named = {
            "kind": kind,
            "delivery_id": payload["delivery_id"],
            "run_id": run_id,
            "workflow": "CI",
            "job": job,
        }
        headers = {"Authorization": f"Bearer {token}", uploads.TOKEN_HEADER: payload["callback_token"]}
        status, _ = await bot.request(
            "POST", "/api/oot/uploads", params=named, data=io.BytesIO(body), headers=headers
        )
        assert status == 202
        return payload

    return send
