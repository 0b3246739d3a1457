"""What every bot of a test process would compile or check again: SQL, templates, keys. Kept once, through seams of the app.

What is kept depends on nothing but what it is made of, so that no test can tell. Programs that tests start are not
touched. Without it, starting a bot and showing two pages takes 120 ms of CPU instead of 40: 35 are templates, 40 the
check that the key's numbers are prime, 10 SQL. Of aiohttp's routes nothing is kept: that saved one millisecond.
"""

from __future__ import annotations

import functools

import jinja2
import sqlalchemy as sa

from bot.github import client

load_key = functools.cache(client.load_key)


class Templates(jinja2.BytecodeCache):
    """Compiled templates of all applications."""

    def __init__(self):
        self._compiled = {}

    def load_bytecode(self, bucket):
        bucket.code = self._compiled.get((bucket.key, bucket.checksum))

    def dump_bytecode(self, bucket):
        self._compiled[bucket.key, bucket.checksum] = bucket.code


class Statements:
    """Compiled statements of all engines; SQLAlchemy's own memory is one per engine, and so per started bot."""

    def __init__(self):
        self._compiled = {}

    def get(self, key, default=None):
        return self._compiled.get(_by_dialect(key), default)

    def __setitem__(self, key, compiled):
        self._compiled[_by_dialect(key)] = compiled


def _by_dialect(key):
    dialect, *rest = key
    return (dialect.name, dialect.driver, *rest)


TEMPLATES = Templates()
STATEMENTS = Statements()


@functools.cache
def share_statements():
    """Have all engines of this process share their compiled statements from now on."""
    sa.event.listen(sa.Engine, "engine_connect", _share)


def _share(connection):
    connection.execution_options(compiled_cache=STATEMENTS)
