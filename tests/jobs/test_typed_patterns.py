"""Patterns that readers type: none is kept, and none takes much memory or time."""

from __future__ import annotations

import resource
import time
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.harness import UPSTREAM
from tests.jobs.branch import deliver, job, push
from tests.jobs.test_hud import API, HUD
from tests.serving import SQLITE

LAST_GOOD = f"/api/ci/{UPSTREAM}/last-good"
WARM = 10  # requests until the program has what it keeps anyway
LARGE = r"([a-z0-9]{1,9}[-_/ ]?){1,20}(build|test|lint){2,9}x{%d}"  # some 2,000 steps


def memory():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@SQLITE
@pytest.mark.parametrize("pattern", [r"(\pL{1,30}){1,30}", "(((a{1,30}){1,30}){1,30}", "(?:x{900}){900}"])
@pytest.mark.parametrize("path", [f"{API}?name=/%s/", f"{HUD}?name=/%s/", f"{LAST_GOOD}?jobs=%s"])
async def test_a_pattern_that_takes_much_is_refused(bot, path, pattern):
    await deliver(bot, push(bot, "A"), job(bot, "build", "A"))
    began = time.process_time()
    assert (await bot.get(path % quote(pattern)))[0] == 400
    assert time.process_time() - began < 1


@SQLITE
@pytest.mark.alone
@pytest.mark.parametrize("path", [f"{API}?name=/%s/", f"{LAST_GOOD}?jobs=%s"])
async def test_patterns_of_strangers_are_not_kept(bot, path):
    long = [f"{'ab' * 100} {at}" for at in range(50)]
    await deliver(bot, push(bot, "A"), *(job(bot, name, "A") for name in ("build", *long)))
    before = 0
    for at in range(WARM + 120):
        if at == WARM:
            before = memory()
        assert (await bot.get(path % quote(LARGE % at)))[0] in {200, 400, 404}
    assert memory() - before < 6 * 1024 * 1024
