"""What the tests of the JSON answers ask."""

from tests.harness import UPSTREAM

ADMIN = {"Authorization": "Bearer an admin token of ours"}


async def read(bot, path, **options):
    status, body = await bot.get(path, **options)
    assert status == 200, body
    return body


async def said_to_be(bot, github, *, private, at=0):
    """GitHub tells what a repository is now."""
    repo = github.state.repo(UPSTREAM)
    payload = {
        "action": "privatized" if private else "publicized",
        "repository": {
            "id": repo.id,
            "full_name": UPSTREAM,
            "name": UPSTREAM.split("/")[1],
            "private": private,
            "updated_at": f"2026-10-01T00:00:{at:02}Z",
        },
    }
    assert (await bot.send("repository", payload))[0] == 202
    await bot.settle()
