"""Pages in general: what people see, and what a backend's words cannot do there."""

import html
import re

import pytest

from tests.harness import L1, L2, L3, L4, UPSTREAM
from tests.pages.page_checks import OUR_SCRIPT, add_job, check_escaped, failures, page_text
from tests.serving import SQLITE

PAGES = ("/oot", "/oot/levels", "/oot/metrics", f"/oot/{L4}", f"/{UPSTREAM}/pull/1")


@pytest.fixture
async def pull(bot, github):
    made = await github.open_pull(UPSTREAM, title="Make it <faster> & safer", author="octocat")
    await bot.settle()
    return made


def section(page, backend):
    """The HTML of one backend on a pull request's page."""
    anchor = "backend-" + backend.replace("/", "-")
    parts = re.split(r'(?=<details class="backend)', page)
    return next(part for part in parts if f'id="{anchor}"' in part)


async def relayed(bot, pull, **changes):
    """A row as an outside relay's report leaves it."""
    row = {
        "downstream_repo": "relayed/chip", "downstream_repo_level": 3, "source": "relay", "job_name": "smoke",
        "pr_number": pull.number, "head_sha": pull.head_sha, "delivery_id": "elsewhere", "run_id": "a-uuid",
        "queue_time": None, "execution_time": None, "completed_at": None,
    }  # fmt: skip
    await add_job(bot, **row | changes)


@pytest.mark.logic
async def test_the_root_leads_to_the_health_of_all_backends(bot):
    assert "Backend health" in await page_text(bot, "/")


@pytest.mark.logic
async def test_every_listed_backend_is_shown_before_anybody_reported_and_l1_without_numbers(bot):
    text = await page_text(bot, "/oot")
    assert (
        text.index("L4 Blocking")
        < text.index("L3 Check runs")
        < text.index("L2 Results")
        < text.index("L1 Only")
    )
    assert text.count("no data yet") == 3
    assert text.count("no data") == 3  # once for each
    assert f"{L1} receives events, reports nothing" in text
    assert "receives events and reports nothing" in await page_text(bot, f"/oot/{L1}")


@pytest.mark.logic
async def test_the_health_page_counts_what_was_reported_and_shows_the_worst_first(bot, pull):
    await bot.report(bot.dispatch(L4), conclusion="failure")
    await bot.report(bot.dispatch(L2))
    await relayed(bot, pull, downstream_repo_level=4)
    bot.clock.advance(180)
    text = await page_text(bot, "/oot")
    l4 = text[text.index("L4 Blocking") : text.index("L3 Check runs")]
    assert re.search(
        rf"tpu {L4} ✕ 0 % [· ]+✕ 1 1 0 0 .*dave 3 min ago relayed/chip ! not on the allowlist ✓ 100 % ", l4
    )
    assert re.search(rf"{L2} ✓ 100 % [· ]+✓ 1 0 0 0 .* alice , bob ", text)


@pytest.mark.logic
async def test_the_health_page_is_narrowed_by_name_and_level(bot):
    assert L4 not in await page_text(bot, "/oot?q=npu")
    assert L3 in await page_text(bot, "/oot?q=NPU+org")
    assert L4 in await page_text(bot, "/oot?level=4&q=")
    assert L3 not in await page_text(bot, "/oot?level=4&q=")
    assert "No backend matches" in await page_text(bot, "/oot?q=nobody")


@pytest.mark.logic
async def test_a_broken_newer_allowlist_is_loud_on_the_pages(bot, tmp_path):
    (tmp_path / "allowlist.yml").write_text("L9: [a/b]")
    bot.clock.advance(600)
    await bot.wait(600)
    for path in ("/oot", "/oot/levels"):
        text = await page_text(bot, path)
        assert "L9" in text
        assert "last good one stays in force" in text


@pytest.mark.logic
@pytest.mark.parametrize(
    "query", ["days=0", "days=401", "days=x", "days=-1", "days=٣", "level=5", "level=L4"]
)
async def test_a_wrong_parameter_is_refused_with_the_allowed_range(bot, query):
    name = query.split("=")[0]
    most = {"days": "400", "level": "4"}[name]
    said = f"{name} must be a whole number from 1 to {most}"
    assert said in await page_text(bot, f"/oot?{query}", status=400)
    assert '<a href="?">' in (await bot.get(f"/oot?{query}"))[1]  # the way back to what was meant
    status, body = await bot.get(f"/api/oot/summary?{query}")
    assert (status, body["error"], body["detail"]) == (400, "invalid_parameter", said)


@pytest.mark.logic
async def test_the_pull_request_page_tells_what_is_waited_for_and_looks_again_by_itself(bot, pull):
    page = (await bot.get(f"/{UPSTREAM}/pull/{pull.number}"))[1]
    assert '<meta http-equiv="refresh" content="15">' in page
    assert "Make it &lt;faster&gt; &amp; safer" in page
    assert "queued" in section(page, L4)
    assert "no report yet" in section(page, L4)
    assert " open>" not in section(page, L4)
    text = await page_text(bot, f"/{UPSTREAM}/pull/{pull.number}")
    assert "open by octocat into main" in text
    assert L1 not in text


@pytest.mark.logic
async def test_a_failed_backend_is_open_with_its_jobs_and_times_and_its_tests_are_listed_above(bot, pull):
    for job in ("build", "test"):
        await bot.report(bot.dispatch(L4), status="in_progress", job=job)
    bot.clock.advance(90)
    await bot.report(
        bot.dispatch(L4), conclusion="failure", job="test",
        test_results={"passed": 8430, "failed": 2, "skipped": 20},
        failed_tests=[{"name": "test_add", "classname": "ops", "file": "ops.py", "line": 12,
                       "message": "3 != 4", "stacktrace": "Traceback\n  here"}],
    )  # fmt: skip
    assert "finished" not in section((await bot.get(f"/{UPSTREAM}/pull/{pull.number}"))[1], L4)
    await bot.report(bot.dispatch(L4), job="build")
    page = (await bot.get(f"/{UPSTREAM}/pull/{pull.number}"))[1]
    mine = section(page, L4)
    assert "finished <time" in mine
    assert mine.startswith('<details class="backend bad"')
    assert " open>" in mine[: mine.index("<summary")]
    text = " ".join(re.sub(r"<[^>]+>", " ", mine).split())
    assert "✕ failed tpu L4 1 of 2 passed, 1 failed" in text
    assert "on call: dave" in text
    assert "test CI ✕ failed no baseline 90 s" in text
    assert "2 failed , 8430 passed, 20 skipped" in text
    assert f'href="https://github.com/{L4}/actions/runs/900" rel="noopener noreferrer nofollow">log' in mine
    test, rest = failures(page)
    assert test == [
        "ops.test_add CI / test on tpu ops.py:12 3 != 4 3 != 4 Traceback here", "✕ tpu failed", "no baseline yet",
        "tpu blocks merging",
    ]  # fmt: skip
    assert "Traceback\n  here" in page
    assert rest[0] == "CI / test failed · 1 failed test not named"


@pytest.mark.logic
async def test_the_page_rests_once_everything_is_finished(bot, pull):
    for backend in (L2, L3, L4):
        await bot.report(bot.dispatch(backend), conclusion="failure")
    await bot.settle()
    assert "http-equiv" not in (await bot.get(f"/{UPSTREAM}/pull/{pull.number}"))[1]


@pytest.mark.logic
async def test_older_commits_stay_readable(bot, github, pull):
    await bot.report(bot.dispatch(L4), conclusion="failure")
    old, new = pull.head_sha, await github.push_commit(pull)
    await bot.settle()
    path = f"/{UPSTREAM}/pull/{pull.number}"
    now = await page_text(bot, path)
    assert f"{new[:7]} newest" in now
    assert old[:7] in now
    assert "1 failed" not in now
    before = await page_text(bot, f"{path}?sha={old[:10]}")
    assert "This is not the newest commit" in before
    assert "0 of 1 passed, 1 failed" in before
    assert new[:12] in await page_text(bot, f"{path}?sha={'0' * 40}", status=404)
    assert "hexadecimal" in await page_text(bot, f"{path}?sha=main", status=400)


@pytest.mark.logic
async def test_a_commit_leads_to_its_pull_request(bot, pull):
    for sha in (pull.head_sha, pull.head_sha[:8], pull.head_sha.upper()):
        answer = await bot.http.get(f"{bot.url}/{UPSTREAM.upper()}/commit/{sha}", allow_redirects=False)
        assert answer.status == 302
        assert answer.headers["Location"] == f"/{UPSTREAM}/pull/{pull.number}?sha={pull.head_sha}"
    for path, what in ((f"commit/{'0' * 40}", "commit"), ("pull/999", "pull request #999")):
        unknown = await page_text(bot, f"/{UPSTREAM}/{path}", status=404)
        assert f"Nothing is known of {what}" in unknown
        _, markup = await bot.get(f"/{UPSTREAM}/{path}")
        assert f'/{UPSTREAM}/{path}" rel=' in markup  # at GitHub


@pytest.mark.logic
@pytest.mark.parametrize("path", [f"/{UPSTREAM}/pull/77", "/no/body/pull/1", f"/{UPSTREAM}/pull/x"])
async def test_an_unknown_pull_request_says_what_to_check(bot, path):
    text = await page_text(bot, path, status=404)
    assert "Is the App installed on" in text
    assert "upstream repositories" in text


@pytest.mark.logic
async def test_repositories_are_found_whatever_the_case_of_their_name(bot, pull):
    await bot.report(bot.dispatch(L4))
    assert L4 in await page_text(bot, f"/{UPSTREAM.upper()}/pull/{pull.number}")
    assert "1 of 1 that count" in await page_text(bot, f"/oot/{L4.upper()}")


@pytest.mark.logic
async def test_the_backend_page_lists_its_newest_jobs_with_their_pull_requests(bot, pull):
    await bot.report(bot.dispatch(L4), job="build")
    bot.clock.advance(60)
    await bot.report(
        bot.dispatch(L4),
        job="test",
        conclusion="failure",
        test_results={"passed": 1, "failed": 3, "skipped": 0},
    )
    text = await page_text(bot, f"/oot/{L4}")
    assert text.index("test CI ✕ failed") < text.index("build CI ✓ passed")
    assert "3 failed , 1 passed" in text
    assert "✕ 50 % 1 of 2 that count" in text
    page = (await bot.get(f"/oot/{L4}"))[1]
    anchor = f"/{UPSTREAM}/pull/{pull.number}?sha={pull.head_sha}#backend-{L4.replace('/', '-')}"
    assert anchor in page
    assert "No job in the last 30 days" in await page_text(bot, f"/oot/{L3}")
    assert "not on the allowlist" in await page_text(bot, "/oot/no/body", status=404)


@pytest.mark.logic
async def test_what_a_relay_told_is_shown_as_such(bot, pull):
    await relayed(bot, pull, conclusion="failure")
    page = (await bot.get(f"/{UPSTREAM}/pull/{pull.number}"))[1]
    mine = page[page.index('id="backend-relayed-chip-relay"') :]
    assert "Reported by an outside relay" in mine
    assert "0 of 1 passed, 1 failed" in mine
    assert "not on the allowlist" in await page_text(bot, "/oot/relayed/chip")


EVIL = '"><script>alert(1)</script><img src=x onerror=y>\u202e\u200bgnp.exe'


@pytest.mark.logic
async def test_nothing_a_backend_says_becomes_more_than_a_word(bot, github, pull):
    await bot.report(
        bot.dispatch(L4), conclusion="failure", job=EVIL, name=EVIL, environment={EVIL: EVIL},
        url="javascript:alert(1)", artifact_url="https://user:pass@evil.example/",
        test_results={"passed": 0, "failed": 1, "skipped": 0},
        failed_tests=[{"name": EVIL, "classname": EVIL, "file": EVIL, "line": 1, "message": EVIL, "stacktrace": EVIL}],
    )  # fmt: skip
    await relayed(
        bot,
        pull,
        upstream_repo="/evil.example/x",
        downstream_repo="/evil.example/y",
        workflow_run_url="data:,x",
    )
    await relayed(bot, pull, downstream_repo="//evil.example", workflow_run_url="data:,x")
    for path in ("/oot", f"/oot/{L4}", f"/{UPSTREAM}/pull/{pull.number}"):
        page = (await bot.get(path))[1]
        page = OUR_SCRIPT.sub("", page)
        assert re.search(r"<(?:script|img)|\u202e|\u200b|javascript:|data:,|user:pass", page) is None, path
        assert re.search(r'href="//', page) is None, path
    assert "gnp.exe" in await page_text(bot, f"/{UPSTREAM}/pull/{pull.number}")


@pytest.mark.logic
async def test_pages_have_no_script_but_ours_no_inline_style_and_name_their_json(bot, pull):
    await bot.report(bot.dispatch(L4), conclusion="failure")
    for path in PAGES:
        answer = await bot.http.get(bot.url + path)
        page = await answer.text()
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
        assert re.search(r"<script|\sstyle=|\son\w+=", OUR_SCRIPT.sub("", page)) is None
        (address,) = re.findall(r'<a href="([^"]+)">This page as JSON</a>', page)
        status, body = await bot.get(html.unescape(address))
        assert (status, body["ok"]) == (200, True)


@pytest.mark.logic
async def test_stylesheet_and_icon_may_be_kept_and_nothing_else_is_served(bot):
    for path, kind in (("/static/style.css", "text/css"), ("/favicon.ico", "image/svg+xml")):
        answer = await bot.http.get(bot.url + path)
        assert (answer.status, answer.content_type) == (200, kind)
        assert "max-age" in answer.headers["Cache-Control"]
    for path in ("/static/../pages.py", "/static/%2e%2e/pages.py", "/static/other.css"):
        assert (await bot.get(path))[0] == 404


@pytest.mark.logic
async def test_levels_words_and_the_allowlist_are_explained(bot):
    text = await page_text(bot, "/oot/levels")
    for word in ("queued", "being confirmed", "never started", "new", "known", "flaky", "/oot rerun"):
        assert word in text
    assert "npu org/npu-backend on call: carol label ciflow/oot/npu or ciflow/crcr/npu" in text


@SQLITE
@pytest.mark.parametrize(
    "path", ["/nowhere", "/oot/org", "/no/where/at/all", "/oot/a/b/c", "/admin/sign-in", "/static/x"]
)
async def test_an_address_of_no_page_is_a_page_for_people_and_json_for_programs(bot, path):
    browser = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
    status, body = await bot.get(path)
    assert (status, body["ok"]) == (405 if "sign-in" in path else 404, False)
    async with bot.http.get(bot.url + path, headers=browser) as answer:
        page = await answer.text()
        assert (answer.status, answer.content_type) == (status, "text/html")
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
    check_escaped(page)
    assert "Backend health" in page
    assert ("/OWNER/NAME/pull/NUMBER" in page) is (status == 404)
    async with bot.http.get(f"{bot.url}/api/nothing", headers=browser) as answer:
        assert (answer.status, (await answer.json())["error"]) == (404, "not_found")


@SQLITE
async def test_an_unknown_backend_offers_to_look_for_one_of_that_name(bot):
    page = (await bot.get("/oot/org/npu"))[1]
    assert '<input type="search" name="q" value="npu"' in page
    assert L3 in await page_text(bot, "/oot?q=npu")
