"""Does the bot work behind PgBouncer in transaction mode, as docs/operations.md says?"""

from __future__ import annotations

import pytest

from tests.harness import L3, UPSTREAM, make_settings, running
from tests.pooler import PROGRAM, pooler
from tests.serving import POSTGRES


@pytest.mark.skipif(PROGRAM is None, reason="PgBouncer is not installed")
@POSTGRES
async def test_a_pull_request_is_dispatched_and_reported_through_a_pooler(
    github, issuer, clock, tmp_path, database_url
):
    with pooler(database_url) as through:
        settings = make_settings(
            github=github, issuer=issuer, app=github.app, folder=tmp_path, database_url=through
        )
        async with running(settings, github=github, issuer=issuer, app=github.app, clock=clock) as bot:
            pull = await github.open_pull(UPSTREAM)
            await bot.settle()
            status, _ = await bot.report(bot.dispatch(L3), status="completed", conclusion="success")
            assert status == 200
            await bot.settle()
            _, page = await bot.get(f"/{UPSTREAM}/pull/{pull.number}")
            assert L3 in page
            status, ready = await bot.get("/readyz")
            assert (status, ready["notes"]) == (200, [])
