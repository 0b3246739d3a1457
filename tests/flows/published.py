"""Pull requests under an allowlist, for the tests of publishing."""

from __future__ import annotations

from tests.harness import L3, L4, UPSTREAM

JOBS = f"""
L3: {{npu: {{repo: {L3}, oncalls: [carol], checks: jobs}}}}
L4: [{{repo: {L4}, oncalls: [dave], device: tpu, checks: jobs}}]
"""


async def opened(bot, github, text=None, **options):
    """A pull request under this allowlist."""
    if text:
        await bot.list_backends(text)
    pull = await github.open_pull(UPSTREAM, **options)
    await bot.settle()
    return pull
