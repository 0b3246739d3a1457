"""A browser that has a page already is told so, and keeps the policy that the page came with."""

from tests.serving import SQLITE


@SQLITE
async def test_a_page_that_has_not_changed_keeps_its_scripts(bot):
    async with bot.http.get(bot.url + "/oot") as first:
        policy, etag = first.headers["Content-Security-Policy"], first.headers["ETag"]
        assert "script-src 'self'" in policy
    async with bot.http.get(bot.url + "/oot", headers={"If-None-Match": etag}) as again:
        assert (again.status, await again.read()) == (304, b"")
        assert again.headers["Content-Security-Policy"] == policy
