"""Who was asked and why not: on the console as the documents show it, on the page, in `ootbot doctor`."""

import re
from pathlib import Path

import pytest
import sqlalchemy as sa

from bot.db.rows import metadata
from tests.command import ootbot
from tests.flows.scenarios import dispatched_to
from tests.harness import L1, L2, L3, L4, UPSTREAM
from tests.oot.dispatch.selected import blocking, entry, explained, explanation, open_pull

pytestmark = pytest.mark.logic
PAGE = (Path(__file__).parents[3] / "docs/dispatch.md").read_text(encoding="utf-8")
LISTED = f"""
L1: [{L1}]
L2: [{{repo: {L2}, max_parallel: 1}}]
L3:
  npu: {{repo: {L3}, paths: ["src/**"], answers: all}}
  dsp: {{repo: org/dsp, paths: ["src/**"], answers: all}}
L4:
  tpu: {{repo: {L4}, paths: ["src/**", "!**/*.md"], paths_pass: true}}
  gpu: {{repo: org/gpu, paths: ["docs/**"], paths_pass: true}}
"""


@pytest.fixture
def bot(bot, github):
    """One with two more backends."""
    for name in ("org/dsp", "org/gpu"):
        github.add_repo(name)
        github.install(name, bot.app)
    return bot


async def test_the_console_says_what_the_page_of_the_documents_shows(bot, github):
    await bot.list_backends(LISTED)
    await open_pull(bot, github, "docs/other.md")
    pull = await open_pull(bot, github, "docs/guide.md", labels=["ciflow/oot/dsp"])
    code, out, err = await ootbot(bot, "allowlist", "explain", f"{UPSTREAM}#{pull.number}")
    assert (code, err) == (0, "")
    (shown,) = re.findall(r"^\$ ootbot allowlist explain .*\n((?:.+\n)+?)```", PAGE, re.MULTILINE)
    names = {L1: "example-org/watcher", L2: "example-org/cpu    "}
    for ours, theirs in names.items():
        out = re.sub(rf"  {ours} +L", f"  {theirs.strip():19}  L", out)
    first, *lines = out.splitlines()
    assert first == f"{UPSTREAM}#{pull.number} at {pull.head_sha[:7]}"
    assert [line.split() for line in lines] == [line.split() for line in shown.splitlines()[1:]]


async def test_the_page_lists_who_was_not_asked_and_why(bot, github):
    await bot.list_backends(LISTED)
    await open_pull(bot, github, "docs/other.md")
    pull = await open_pull(bot, github, "docs/guide.md")
    address = f"/{UPSTREAM}/pull/{pull.number}"
    _, page = await bot.get(address)
    assert "Who was asked, and why not" in page
    assert "npu: skipped, no file of interest changed" in page
    assert f"{L2}: waiting for a machine: 0 before you" in page
    assert f"{L1}: sent, it takes part in pull requests" in page
    assert "2 sent" in page
    first = pull.head_sha
    bot.clock.advance(5)
    await github.push_commit(pull)
    await bot.settle()
    _, page = await bot.get(f"{address}?sha={first}")
    assert "Who was asked" not in page, "which is about the newest head alone"


async def test_where_all_were_sent_the_list_of_backends_says_so(bot, github):
    pull = await open_pull(bot, github)
    _, page = await bot.get(f"/{UPSTREAM}/pull/{pull.number}")
    assert "Who was asked" not in page


@pytest.mark.parametrize(
    ("terms", "more", "says"),
    [
        ("events: [push]", {}, ("skipped", "events")),
        ("policy: trusted", {"author_association": "NONE"}, ("waiting", "policy")),
        ("policy: trusted, paths: [src/**]", {"author_association": "NONE"}, ("skipped", "paths")),
        ("actions: [closed]", {}, ("skipped", "events")),
        ("draft: false", {"draft": True}, ("skipped", "draft")),
        ("paths: [torch/**]", {}, ("sent", "paths")),
    ],
)
async def test_each_rule_is_named(bot, github, terms, more, says):
    await bot.list_backends(entry(terms))
    pull = await open_pull(bot, github, **more)
    assert await explained(bot, pull) == {L2: says}


async def test_a_command_is_named_as_what_decided(bot, github):
    await bot.list_backends(entry("paths: [src/**]"))
    github.set_permission(UPSTREAM, "maintainer", "write")
    pull = await open_pull(bot, github)
    bot.clock.advance(5)
    await github.comment(pull, f"/oot run {L2}", "maintainer")
    await bot.settle(horizon=5)
    assert dispatched_to(github) == [L2]
    assert await explained(bot, pull) == {L2: ("sent", "asked")}
    assert (await explanation(bot, pull))["head_sha"] == pull.head_sha


@pytest.mark.parametrize(
    ("named", "code", "says"),
    [
        ("pytorch/pytorch", 2, "names no pull request: write it as in owner/repo#123"),
        ("pytorch/pytorch#x", 2, "names no pull request"),
        ("pytorch#1", 2, "names no pull request"),
        ("pytorch/pytorch#" + "9" * 19, 2, "names no pull request"),
        ("pytorch/pytorch#77", 1, "nothing is known of pytorch/pytorch#77"),
        ("other/repo#1", 1, "nothing is known of other/repo#1"),
    ],
)
async def test_what_cannot_be_explained_is_said(bot, named, code, says):
    found, out, err = await ootbot(bot, "allowlist", "explain", named)
    assert (found, out) == (code, "")
    assert says in err


async def test_without_an_allowlist_it_says_so(bot):
    async with bot.store.transaction() as tx:
        await tx.run(sa.delete(metadata.tables["allowlist_version"]))
    code, _, err = await ootbot(bot, "allowlist", "explain", f"{UPSTREAM}#1")
    assert code == 1
    assert "has been read yet: `ootbot allowlist show` says more" in err


async def test_doctor_names_blocking_backends_whose_paths_are_ignored(bot):
    await bot.list_backends(
        f"{blocking('paths: [src/**]')}\n  gpu: {{repo: org/gpu, paths: [docs/**], paths_pass: true}}"
    )
    _, out, _ = await ootbot(bot, "doctor")
    assert "tpu blocks, so its `paths` are ignored: it runs every pull request" in out
    assert "add `paths_pass: true`" in out
    assert "the gate passes without gpu where no file of its `paths` changed" in out
