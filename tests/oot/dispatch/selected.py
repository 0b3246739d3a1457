"""What the tests of selective dispatch ask the bot and GitHub."""

import json

from tests.command import ootbot
from tests.flows.scenarios import dispatched_to
from tests.harness import L2, L4, UPSTREAM

SOURCES = '["torch/csrc/**", "!**/*.md"]'
SKIPPED = "no file of interest changed"


def entry(terms, repo=L2):
    """An allowlist of one L2 backend with these terms."""
    return f"L2: [{{repo: {repo}, {terms}}}]"


def blocking(terms):
    """An allowlist of one L4 backend with these terms."""
    return f"L4:\n  tpu: {{repo: {L4}, {terms}}}"


def asked_for_files(github):
    """The calls that listed the files of pull requests."""
    return [one for one in github.calls if one.path.endswith("/files")]


async def open_pull(bot, github, *files, **more):
    bot.clock.advance(1)
    pull = await github.open_pull(UPSTREAM, files=files or ("torch/csrc/a.cpp",), **more)
    await bot.settle()
    return pull


async def push_files(bot, github, pull, *files):
    """Push a commit that leaves the pull request with these changed files."""
    bot.clock.advance(5)
    pull.files = files
    sha = await github.push_commit(pull)
    await bot.settle()
    return sha


async def explained(bot, pull):
    """What `ootbot allowlist explain` says, by backend: outcome and rule."""
    found = await explanation(bot, pull)
    return {one["backend"]: (one["outcome"], one["rule"]) for one in found["asked"]}


async def explanation(bot, pull):
    code, out, err = await ootbot(bot, "allowlist", "explain", f"{UPSTREAM}#{pull.number}", "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


__all__ = [
    "SKIPPED",
    "SOURCES",
    "asked_for_files",
    "blocking",
    "dispatched_to",
    "entry",
    "explained",
    "explanation",
    "open_pull",
    "push_files",
]
