"""How much of the disk do repositories get that have nothing to do with us?"""

from __future__ import annotations

import random

from tests.harness import L2, UPSTREAM, replace, running

MEGABYTE = 1024 * 1024


async def noise(bot, github, repo, count):
    """Deliver so many bodies of half a megabyte, which do not get smaller when compressed."""
    drawn = random.Random(5)
    about = {"id": github.state.repo(repo).id, "full_name": repo, "private": False}
    for number in range(count):
        issue = {"id": number + 1, "number": number + 1, "body": drawn.randbytes(MEGABYTE // 4).hex()}
        guid = f"{repo.replace('/', '-')}-{number}"
        assert (
            await bot.send("issues", {"action": "opened", "issue": issue, "repository": about}, guid=guid)
        )[0] == 202
    await bot.settle()


async def test_strangers_deliveries_take_no_more_than_their_share_of_the_disk(
    settings, github, issuer, clock
):
    strange = "some/body"
    github.add_repo(strange)
    few = replace(settings, others_raw_mb=2)
    async with running(few, github=github, issuer=issuer, app=github.app, clock=clock) as bot:
        for repo in (UPSTREAM, L2, strange):
            await noise(bot, github, repo, 8)
        await bot.wait(2 * 3600)
        rows = sorted(await bot.rows("delivery"), key=lambda row: row["id"])
        left = [row["guid"] for row in rows if "-" in row["guid"]]
        of_strangers = [guid for guid in left if guid.startswith("some-body")]
        assert 2 <= len(of_strangers) <= 7
        assert of_strangers[-1] == "some-body-7"
        held = sum(len(row["body"]) for row in rows if row["guid"] in of_strangers)
        assert held <= 2 * MEGABYTE
        for repo in (UPSTREAM, L2):
            assert len([guid for guid in left if guid.startswith(repo.replace("/", "-"))]) == 8
