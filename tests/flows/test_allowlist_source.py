"""Where does the allowlist come from, when does a change count, and what happens while it cannot be read?"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest

from bot.oot.allowlist.allowlist import OnGitHub, parse_github_source
from tests import harness
from tests.harness import ALLOWLIST, L1, L2, L3, L4, UPSTREAM

pytestmark = pytest.mark.logic


CONFIG = "org/config"
PATH = "ci/allowlist.yml"
SOURCE = f"{CONFIG}:{PATH}@release"


@pytest.mark.parametrize(
    ("setting", "found"),
    [
        ("org/repo:a.yml", OnGitHub(repo="org/repo", path="a.yml", ref=None)),
        ("org/repo.x:.github/a.yml@main", OnGitHub(repo="org/repo.x", path=".github/a.yml", ref="main")),
        ("org/repo:/a@b.yml@release/2", OnGitHub(repo="org/repo", path="a@b.yml", ref="release/2")),
        ("allowlist.yml", None),
        ("config/allowlist.yml", None),
        ("./config:old/allowlist.yml", None),
        ("/etc/ootbot:x/allowlist.yml", None),
        ("C:\\ootbot\\allowlist.yml", None),
        ("org/repo:", None),
        ("org/repo:/", None),
    ],
)
def test_the_setting_names_a_file_on_github_or_on_disk(setting, found):
    assert parse_github_source(setting) == found


@pytest.fixture
async def config(github):
    """A repository that holds the allowlist on a branch of its own."""
    repo = github.add_repo(CONFIG)
    repo.branches["release"] = repo.branches["main"]
    github.set_file(CONFIG, PATH, ALLOWLIST, branch="release")
    return repo


@pytest.fixture
async def remote(settings, config, github, issuer, clock):
    """A bot that reads its allowlist from there."""
    chosen = harness.replace(settings, allowlist=SOURCE)
    async with harness.running(chosen, github=github, issuer=issuer, app=github.app, clock=clock) as bot:
        yield bot


def reads(github):
    return [call.status for call in github.calls if "/contents/" in call.path]


async def listed(bot):
    _, answer = await bot.get("/api/oot/allowlist")
    return json.dumps(answer)


async def notes(bot, **options):
    status, answer = await bot.get("/readyz", **options)
    return status, " ".join(answer["missing"] + answer["notes"])


async def gauge(bot):
    _, text = await bot.get("/metrics")
    (line,) = [line for line in text.splitlines() if line.startswith("ootbot_allowlist_ok ")]
    return float(line.split()[1])


async def test_the_list_is_read_from_a_branch_of_another_repository(remote, github):
    assert await notes(remote) == (200, "")
    await github.open_pull(UPSTREAM)
    await remote.settle()
    assert sorted(one.repo.full_name for one in github.dispatches) == sorted([L1, L2, L3, L4])
    (token,) = [each for each in github.state.tokens.values() if each.permissions.get("contents") == "read"]
    assert token.repository_ids == {github.state.repo(CONFIG).id}


async def test_an_unchanged_list_costs_nothing(remote, github):
    for _ in range(3):
        remote.clock.advance(61)
        await remote.settle()
    assert reads(github) == [200, 304, 304, 304]
    assert len(await remote.rows("allowlist_version")) == 1


async def test_a_push_that_touches_the_file_counts_at_once(remote, github):
    assert "new/backend" not in await listed(remote)
    await github.push(CONFIG, "release", files={PATH: f"{ALLOWLIST}\n  gpu: new/backend\n"})
    await remote.settle()
    assert "new/backend" in await listed(remote)


@pytest.mark.parametrize("path", ["oot/ALLOWLIST.YAML", "backends"])
async def test_its_name_makes_no_difference(settings, github, issuer, clock, path):
    github.add_repo(CONFIG)
    github.set_file(CONFIG, path, ALLOWLIST)
    elsewhere = harness.replace(settings, allowlist=f"{CONFIG}:{path}")
    async with harness.running(
        elsewhere, github=github, issuer=issuer, app=github.app, clock=clock
    ) as remote:
        await github.push(CONFIG, "main", files={path: f"{ALLOWLIST}\n  gpu: new/backend\n"})
        await remote.settle()
        assert "new/backend" in await listed(remote)


async def test_a_push_that_touches_another_file_is_not_followed_by_a_reading(remote, github):
    before = len(reads(github))
    await github.push(CONFIG, "release", files={"README.md": "Hello."})
    await remote.settle()
    assert len(reads(github)) == before


@pytest.mark.parametrize(
    "cut",
    [
        {"commits": []},
        {"forced": True},
        {"commits": [{"id": "a" * 40, "added": ["a.txt"], "modified": [], "removed": []}] * 2048},
        {
            "commits": [
                {"id": "a" * 40, "added": [f"{n}.txt" for n in range(300)], "modified": [], "removed": []}
            ]
        },
        {"commits": [{"id": "a" * 40}]},
        {"commits": None},
    ],
    ids=["no commits", "forced", "too many commits", "too many files", "no files", "no list"],
)
async def test_a_push_that_does_not_tell_what_it_touched_is_followed_by_a_reading(remote, github, cut):
    await github.push(CONFIG, "release", files={"README.md": "Hello."})
    await remote.settle()
    (pushed,) = [one for one in github.deliveries if one.event == "push"]
    github.set_file(CONFIG, PATH, f"{ALLOWLIST}\n  gpu: new/backend\n", branch="release")
    await github.deliver("push", pushed.payload | cut)
    await remote.settle()
    assert "new/backend" in await listed(remote)


async def test_a_push_to_another_repository_is_never_followed_by_a_reading(remote, github):
    before = len(reads(github))
    await github.push(UPSTREAM, "main", files={PATH: "L2: []"})
    await remote.settle()
    (pushed,) = [one for one in github.deliveries if one.event == "push"]
    await github.deliver("push", pushed.payload | {"forced": True})
    await remote.settle()
    assert len(reads(github)) == before


async def test_a_push_to_the_repository_by_another_name_is_followed_by_a_reading(remote, github):
    await github.push(CONFIG, "release", files={"README.md": "Hello."})
    await remote.settle()
    (pushed,) = [one for one in github.deliveries if one.event == "push"]
    renamed = pushed.payload["repository"] | {"full_name": "org/renamed", "name": "renamed"}
    github.set_file(CONFIG, PATH, f"{ALLOWLIST}\n  gpu: new/backend\n", branch="release")
    await github.deliver("push", pushed.payload | {"repository": renamed, "forced": True})
    await remote.settle()
    assert "new/backend" in await listed(remote)


async def test_while_the_file_is_on_disk_no_push_is_followed_by_a_reading(bot, github, settings):
    Path(settings.allowlist).write_text(f"{ALLOWLIST}  gpu: new/backend\n")
    await github.push(UPSTREAM, "main", files={"README.md": "Hello."})
    await bot.settle()
    (pushed,) = [one for one in github.deliveries if one.event == "push"]
    await github.deliver("push", pushed.payload | {"forced": True})
    await bot.settle()
    assert "new/backend" not in await listed(bot)


@pytest.mark.parametrize("fault", [{"status": 502}, {"drop": True}], ids=["broken", "unreachable"])
async def test_while_github_cannot_be_reached_the_last_good_version_stays_and_it_is_said(
    remote, github, fault
):
    github.faults.add(path="/contents/", times=1_000, **fault)
    remote.clock.advance(61)
    await remote.settle()
    status, said = await notes(remote)
    assert status == 200
    assert "cannot be reached" in said
    assert await gauge(remote) == 0
    await github.open_pull(UPSTREAM)
    await remote.settle()
    assert len(github.dispatches) == 4
    github.faults.clear()
    remote.clock.advance(61)
    await remote.settle()
    assert await notes(remote) == (200, "")
    assert await gauge(remote) == 1


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda github: github.uninstall(CONFIG, github.app), "not installed"),
        (lambda github: github.state.repo(CONFIG).branches.pop("release"), "404"),
        (lambda github: github.set_file(CONFIG, PATH, b"\xff\xfe", branch="release"), "UTF-8"),
        (lambda github: github.set_file(CONFIG, PATH, "x" * 2_000_000, branch="release"), "1 MiB"),
        (lambda github: github.set_file(CONFIG, PATH, "L2: [no repository]", branch="release"), "line 1"),
    ],
    ids=["not installed", "no such branch", "not utf-8", "too large", "wrong"],
)
async def test_a_list_that_cannot_be_used_changes_nothing_and_is_said(remote, github, spoil, reason):
    spoil(github)
    remote.clock.advance(61 + 3600)
    await remote.settle()
    status, said = await notes(remote)
    assert status == 200
    assert reason in said
    await github.open_pull(UPSTREAM)
    await remote.settle()
    assert len(github.dispatches) == 4


async def test_without_any_valid_version_the_bot_is_not_ready_and_keeps_what_happens(
    settings, config, github, issuer, clock
):
    github.set_file(CONFIG, PATH, "L5: []", branch="release")
    chosen = harness.replace(settings, allowlist=SOURCE)
    async with harness.running(chosen, github=github, issuer=issuer, app=github.app, clock=clock) as bot:
        status, said = await notes(bot)
        assert status == 503
        assert "L5" in said
        await github.open_pull(UPSTREAM)
        await bot.settle()
        assert github.dispatches == []
        await github.push(CONFIG, "release", files={PATH: ALLOWLIST})
        await bot.settle(horizon=30)
        assert len(github.dispatches) == 4
        assert (await notes(bot))[0] == 200


async def said_to_be_private(bot, github, name):
    repo = {"id": github.state.repo(name).id, "full_name": name, "private": True}
    repo["updated_at"] = "2026-10-01T00:00:00Z"
    await bot.send("repository", {"action": "privatized", "repository": repo})
    await bot.settle()


@pytest.mark.parametrize("private", [UPSTREAM, CONFIG])
@pytest.mark.parametrize("good", [True, False], ids=["one was good", "none was good"])
async def test_strangers_are_not_told_what_names_private_repositories(
    settings, config, github, issuer, clock, private, good
):
    wrong = "L2: [secret/backend, secret/backend]"
    github.set_file(CONFIG, PATH, ALLOWLIST if good else wrong, branch="release")
    chosen = harness.replace(settings, allowlist=SOURCE)
    async with harness.running(chosen, github=github, issuer=issuer, app=github.app, clock=clock) as bot:
        github.set_file(CONFIG, PATH, wrong, branch="release")
        bot.clock.advance(61)
        await bot.settle()
        status, before = await notes(bot)
        assert "secret/backend" in before
        await said_to_be_private(bot, github, private)
        assert (await notes(bot))[0] == status == (200 if good else 503)
        said = (await notes(bot))[1]
        assert CONFIG not in said
        assert "secret" not in said
        assert "/admin" in said
        admin = {"Authorization": f"Bearer {settings.admin_token}"}
        assert await notes(bot, headers=admin) == (status, before)


async def test_a_changed_file_on_disk_is_in_force_within_a_minute(bot, settings):
    Path(settings.allowlist).write_text(f"{ALLOWLIST}  gpu: new/backend\n")
    bot.clock.advance(60)
    await bot.settle()
    assert "new/backend" in await listed(bot)


async def test_a_new_blocking_backend_shows_on_open_pull_requests_as_not_dispatched(bot, github, settings):
    Path(settings.allowlist).write_text(f"L2: [{L2}]")
    bot.clock.advance(61)
    await bot.settle()
    pull, closed = await github.open_pull(UPSTREAM), await github.open_pull(UPSTREAM)
    await bot.settle()
    await github.close(closed)
    await bot.settle()
    assert bot.checks(UPSTREAM, pull.head_sha) == {}
    Path(settings.allowlist).write_text(f"L2: [{L2}]\nL4: {{tpu: {L4}}}")
    bot.clock.advance(61)
    await bot.settle()
    assert bot.checks(UPSTREAM, pull.head_sha) == {"oot / gate": ("in_progress", None, "waiting for tpu")}
    assert bot.checks(UPSTREAM, closed.head_sha) == {}
    assert [one.repo.full_name for one in github.dispatches] == [L2, L2, L2]
    await github.push_commit(pull)
    await bot.settle()
    assert bot.dispatch(L4).client_payload["payload"]["action"] == "synchronize"


@pytest.mark.parametrize(
    ("left", "check"),
    [
        (
            f"L2: [{L2}]",
            ("completed", "neutral", "this backend takes no part any more: it left the allowlist"),
        ),
        (f"L2: [{L2}, {L4}]", ("queued", None, "queued")),  # what was begun is concluded by its verdict
        (f"L3: {{tpu: {L4}}}", ("queued", None, "queued")),
    ],
)
async def test_a_backend_that_is_no_longer_listed_as_blocking_lets_the_gate_go_at_once(
    bot, github, settings, left, check
):
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / gate"][2] == "waiting for tpu"
    Path(settings.allowlist).write_text(left)
    bot.clock.advance(61)
    await bot.settle(horizon=30)
    checks = bot.checks(UPSTREAM, pull.head_sha)
    assert checks["oot / gate"] == ("completed", "success", "no blocking backend")
    assert checks["oot / tpu"] == check


# The command line


async def ootbot(*words, stdin=b"", **environment):
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bot.cli", *words), env=os.environ | environment,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await process.communicate(stdin)
    return process.returncode, out.decode(), err.decode()


async def test_a_right_file_is_said_to_be_right(tmp_path):
    file = tmp_path / "allowlist.yml"
    file.write_text(ALLOWLIST)
    assert await ootbot("allowlist", "check", str(file)) == (
        0, "ok: 4 backends, 1 at L1, 1 at L2, 1 at L3, 1 at L4\n", "",
    )  # fmt: skip
    code, out, _ = await ootbot("allowlist", "check", "--json", "-", stdin=ALLOWLIST.encode())
    assert code == 0
    assert json.loads(out) == {
        "ok": True, "backends": 4, "levels": {"L1": [L1], "L2": [L2], "L3": [L3], "L4": [L4]},
    }  # fmt: skip


async def test_everything_wrong_with_a_file_is_said_at_once():
    wrong = b"L2:\n- nonsense\n- {org/a: {oncall: alice}}\n"
    code, out, err = await ootbot("allowlist", "check", "-", stdin=wrong)
    assert (code, out) == (1, "")
    assert [line.split(":")[0] for line in err.splitlines()] == ["line 2", "line 3"]
    code, out, _ = await ootbot("allowlist", "check", "-", "--json", stdin=wrong)
    answer = json.loads(out)
    assert (code, answer["ok"]) == (1, False)
    assert [problem["line"] for problem in answer["problems"]] == [2, 3]
    assert "oncalls" in answer["problems"][1]["message"]


async def test_the_version_in_force_is_shown_with_what_is_wrong_with_the_newest(bot, settings):
    environment = {
        "OOTBOT_APP_ID": str(settings.app_id), "OOTBOT_WEBHOOK_SECRET": "x" * 16, "OOTBOT_PRIVATE_KEY": settings.private_key,
        "OOTBOT_UPSTREAM_REPO": UPSTREAM, "OOTBOT_ALLOWLIST": settings.allowlist,
        "OOTBOT_DATA_DIR": str(settings.data_dir), "OOTBOT_DATABASE_URL": settings.database_url or "",
    }  # fmt: skip
    code, out, err = await ootbot("allowlist", "show", **environment)
    assert (code, err) == (0, "")
    first, second, *rest = out.splitlines()
    assert first == f"# {settings.allowlist}, in force since 2026-09-21 14:13:20 UTC"
    assert second == "# 4 backends, 1 at L1, 1 at L2, 1 at L3, 1 at L4"
    assert "\n".join(rest).strip() == ALLOWLIST.strip()
    Path(settings.allowlist).write_text("L2: nonsense\nL9: []\n")
    bot.clock.advance(61)
    await bot.settle()
    code, out, err = await ootbot("allowlist", "show", **environment)
    assert code == 0
    assert "line 1" in err
    assert "line 2" in err
    assert L4 in out
