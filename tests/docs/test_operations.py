"""Are the numbers by which an operator plans those of the code?"""

import re
from pathlib import Path

from bot.db import store
from bot.db.postgres import PostgresServer
from bot.github import client

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "operations.md").read_text()


def numbers(row: str) -> list[int]:
    """What the page says of `web`, `worker` and `all`."""
    (cells,) = re.findall(rf"^\| {row}[^|]*((?:\| \d+ ){{3}})", PAGE, re.MULTILINE)
    return [int(number) for number in re.findall(r"\d+", cells)]


def test_calls_under_way_are_counted_as_they_are():
    assert numbers("calls to GitHub") == [0, client.MAX_CONCURRENT, client.MAX_CONCURRENT]
    assert 5 * client.MAX_CONCURRENT <= 100
    assert 2 * 2 * client.MAX_CONCURRENT <= 100  # two Apps


async def test_connections_are_as_many_as_the_pools_hold():
    text = "postgresql://somewhere/ootbot"
    url = store.parse_url(text)
    options = store.EngineOptions(busy_timeout=5, lost_after=30, server=PostgresServer(text, url))
    own, pages = store.make_engine(url, options), store.make_engine_for_other_loop(url, options)
    most = [engine.pool.size() + engine.pool._max_overflow for engine in (own, pages)]
    assert numbers("connections to PostgreSQL") == [sum(most), most[0], sum(most)]
    assert 40 + 2 * 20 + 10 <= 100
