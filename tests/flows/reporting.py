"""What the tests of results send and ask."""

from __future__ import annotations

from tests.harness import L4


async def post(bot, body, repo, **claims):
    token = bot.issuer.mint(**({"repository": repo, "run_id": "900", "run_attempt": 1} | claims))
    return await bot.request(
        "POST", "/api/oot/callback", json=body, headers={"Authorization": f"Bearer {token}"}
    )


async def green(bot, run_id, repo=L4):
    """The backend says that all went well."""
    for status in ("in_progress", "completed"):
        assert (await bot.report(bot.dispatch(repo), status=status, run_id=str(run_id)))[0] == 200
