"""A verifier of tokens."""

from __future__ import annotations

import aiohttp
import pytest

from bot.oot.reports.oidc import Verifier
from tests.oot.reports.tokens_made import AUDIENCES, configured


@pytest.fixture
async def verifier(issuer, clock):
    async with aiohttp.ClientSession() as http:
        yield Verifier(configured(issuer.url), audiences=AUDIENCES, http=http, clock=clock)
