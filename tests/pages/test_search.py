"""Does the one box find what a text names, and nothing that may not be shown? And the page of each command."""

from urllib.parse import quote

import pytest

from bot.features import FEATURES
from bot.oot.commands.syntax import VERBS, describe_commands, further_commands
from tests.harness import L3, L4, UPSTREAM
from tests.jobs.branch import COMMITS, deliver, job, push
from tests.pages.page_checks import check_escaped, links, page_text
from tests.pages.reading import ADMIN, read, said_to_be
from tests.serving import SQLITE

PULL = f"/{UPSTREAM}/pull/1"
HOSTILE = (
    "(((((a+)+)+$", ".*", "[", "\\", "%", "_", "%%%%", "' OR 1=1 --", '"><script>alert(1)</script>', "\u202e", "a" * 5_000,
    " ".join("abcdefghij" * 30), "#", "@", "/", "::", "9" * 300, "-1", "0", "f" * 64, "💥", "=cmd|' /C calc'!A0",
)  # fmt: skip


async def hits(bot, text, **options):
    """What is found but for links to other searches: kind, name and path."""
    found = (await read(bot, f"/api/search?q={quote(text, safe='')}", **options))["hits"]
    return [
        (one["kind"], one["name"], one["url"].removeprefix(bot.url))
        for one in found
        if one["kind"] not in {"list", "logs"}
    ]


@pytest.mark.parametrize("text", ["1", "#1", f"{UPSTREAM}#1", "{github}/pytorch/pytorch/pull/1/files#diff"])
async def test_a_number_or_an_address_on_github_leads_to_the_pull_request(bot, pull, text):
    text = text.format(github=bot.github.url)
    assert (await hits(bot, text))[0] == ("pull request", "#1 Make it faster", PULL)
    answer = await bot.http.get(f"{bot.url}/search?q={quote(text, safe='')}", allow_redirects=False)
    assert (answer.status, answer.headers["Location"]) == (302, PULL)


async def test_a_pull_request_is_found_by_title_author_branch_and_head(bot, github, pull):
    for text in ("fast", "make FASTER", "octocat", pull.head_ref, pull.head_sha[:9]):
        assert PULL in str(await hits(bot, text)), text
    (found,) = await hits(bot, pull.head_sha)
    assert found == ("pull request", "#1 Make it faster", f"{PULL}?sha={pull.head_sha}")
    await github.edit_title(pull, "Make it smaller")
    await bot.settle()
    assert PULL in str(await hits(bot, "smaller"))
    assert PULL not in str(await hits(bot, "faster"))


async def test_backends_are_found_by_name_device_and_who_is_on_call(bot, pull):
    for text in (L3, "npu", "npu-back", "carol", "@carol"):
        assert ("backend", "npu", f"/oot/{L3}") in await hits(bot, text), text
    assert ("repository", UPSTREAM, f"/{UPSTREAM}") in await hits(bot, "pytorch")
    page = await page_text(bot, "/search?q=tpu")
    assert f"backend tpu {L4} L4, {L4}, on call: dave" in page


async def test_commits_branches_and_jobs_are_found(bot):
    await deliver(
        bot,
        push(bot, "A", title="Fuse pointwise kernels (#7)"),
        push(bot, "B", branch="release/2.9", at=5, title="Cut the release"),
        job(
            bot,
            "linux-jammy / test (default, 1, 2, linux.4xlarge)",
            "A",
            number=4_000_000_001,
            run=3_000_000_001,
        ),
    )
    commit = (
        "commit",
        f"{COMMITS['A'][:10]} Fuse pointwise kernels (#7)",
        f"/{UPSTREAM}/commit/{COMMITS['A']}",
    )
    for text in ("pointwise fu", COMMITS["A"], COMMITS["A"][:8]):
        assert commit in await hits(bot, text), text
    assert ("branch", "release/2.9", f"/hud/{UPSTREAM}/release/2.9") in await hits(bot, "ease/2")
    (found,) = [one for one in await hits(bot, "jammy test") if one[0] == "job"]
    assert found[2].startswith(f"/hud/{UPSTREAM}/main?name=")
    status, _ = await bot.get(found[2])
    assert status == 200
    assert ("job", f"/{UPSTREAM}/job/4000000001") in [
        (kind, path) for kind, _, path in await hits(bot, "4000000001")
    ]


async def test_jobs_of_backends_are_found_and_lead_to_their_column(bot, github, pull):
    for name in ("ascend-910b smoke (1, 2)", "ascend-910b smoke (2, 2)", "docs"):
        await bot.report(bot.dispatch(L4), job=name, run_id="77")
    await bot.settle(horizon=60)
    ((_, title, path),) = [one for one in await hits(bot, "910B smoke") if one[0] == "job"]
    assert title.endswith(" / ascend-910b smoke (1–2)")
    path, _, anchor = path.partition("#")
    assert f'id="{anchor}"' in (await bot.get(path))[1]
    (backend,) = [one for one in github.state.repos.values() if one.full_name == L4]
    about = {"id": backend.id, "full_name": L4, "private": True, "updated_at": "2030-01-01T00:00:00Z"}
    await bot.send("repository", {"action": "privatized", "repository": about})
    await bot.settle(horizon=60)
    assert [one for one in await hits(bot, "910b") if one[0] == "job"] == []
    assert [one for one in await hits(bot, "910b", headers=ADMIN) if one[0] == "job"] != []


async def test_logs_and_lists_of_tests_are_offered_last(bot, pull):
    await said_to_be(bot, bot.github, private=False)
    found = (await read(bot, "/api/search?q=out%20of%20memory%20%28x%29"))["hits"]
    assert [one["kind"] for one in found][-2:] == ["list", "logs"]
    assert "Search logs for “out of memory (x)”" in await page_text(
        bot, "/search?q=out%20of%20memory%20%28x%29"
    )
    assert found[-1]["url"].startswith(f"{bot.url}/{UPSTREAM}/logs?q=out+of+memory+%5C%28x%5C%29")


async def test_whatever_is_searched_for_is_only_a_text(bot, pull):
    for text in HOSTILE:
        await hits(bot, text)
        status, page = await bot.get(f"/search?q={quote(text, safe='')}")
        assert status == 200, text
        check_escaped(page)


@pytest.mark.logic
async def test_what_is_no_text_or_too_long_is_refused_and_nothing_breaks(bot, pull):
    assert (await bot.get("/search?q=a%00b"))[0] == 400
    assert (await bot.get("/search?q=%ff%fe"))[0] in {200, 400}
    assert (await bot.get(f"/search?q={'x' * 10_240}"))[0] in {200, 400, 414}
    assert (await bot.get("/search"))[0] == 200
    assert (await bot.get("/search?q="))[0] == 200
    assert PULL in str(await hits(bot, "faster"))


@pytest.mark.logic
async def test_nothing_private_is_found_without_the_admin_token(bot, github, pull):
    await deliver(bot, push(bot, "A", title="Fuse pointwise kernels"))
    texts = ("1", "faster", "octocat", pull.head_sha, "pointwise", COMMITS["A"], "main", "pytorch", "npu")
    for text in texts:
        assert await hits(bot, text) != [], text
    await said_to_be(bot, github, private=True, at=1)
    for text in texts:
        assert (await read(bot, f"/api/search?q={text}"))["hits"] == [], text
        assert await hits(bot, text, headers=ADMIN) != [], text
        answer = await bot.http.get(f"{bot.url}/search?q={text}", allow_redirects=False)
        assert answer.status == 200


@pytest.mark.logic
async def test_every_page_has_the_box_and_its_script_is_ours(bot, pull):
    for path in ("/oot", PULL, "/search", "/api", "/no/where", f"/{UPSTREAM}/commit/{'0' * 40}"):
        _, page = await bot.get(path, headers={"Accept": "text/html"})
        assert 'role="search" action="/search"' in page, path
        assert 'src="/static/page.js?v=' in page, path
    status, script = await bot.get("/static/page.js")
    assert status == 200
    assert "getElementById" in script
    assert links((await bot.get("/search?q=npu"))[1], f"/oot/{L3}")


@SQLITE
async def test_each_command_is_on_the_page_with_what_it_does_and_who_may_give_it(bot):
    described = describe_commands(FEATURES)
    assert {one.verb for one in described} == {*VERBS, *further_commands(FEATURES)}
    page = await page_text(bot, "/oot/commands")
    for one in described:
        assert f"/oot {one.usage} {one.does} {one.who}" in page


@SQLITE
async def test_a_command_is_found_as_it_is_written_and_by_its_verb(bot):
    for text in ("/oot rerun npu", "rerun", "/oot re"):
        found = (await read(bot, f"/api/search?q={text}"))["hits"]
        assert "/oot/commands#rerun" in [one["url"].removeprefix(bot.url) for one in found], text
    everything = (await read(bot, "/api/search?q=/oot"))["hits"]
    assert len([one for one in everything if one["kind"] == "command"]) == len(describe_commands(FEATURES))
