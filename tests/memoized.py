"""Work that every started bot would repeat, done once per test process: compiled SQL and templates, routes, the check of a
key.

What is kept depends on nothing but what it is made of, so that no test can tell. Programs that tests start are not
touched.
"""

from __future__ import annotations

import functools

import jinja2
import sqlalchemy as sa
from aiohttp import web_urldispatcher

from bot.github import tokens


def install():
    """Remember from now on."""
    sa.event.listen(sa.Engine, "engine_connect", _share_statements)
    jinja2.Environment.compile = _compiling_once(jinja2.Environment.compile)
    # proving that the numbers are prime takes as long as starting the rest of a bot
    tokens.load_pem_private_key = functools.cache(tokens.load_pem_private_key)
    # every bot and every simulated GitHub has hundreds of routes
    web_urldispatcher.DynamicResource.__init__ = _reading_paths_once(
        web_urldispatcher.DynamicResource.__init__
    )
    web_urldispatcher.AbstractRoute.__init__ = _looking_once(web_urldispatcher.AbstractRoute.__init__)


class Statements:
    """Compiled statements of all engines; SQLAlchemy's own memory is one per engine, and so per started bot."""

    def __init__(self):
        self._compiled = {}

    def get(self, key, default=None):
        return self._compiled.get(_by_dialect(key), default)

    def __setitem__(self, key, compiled):
        self._compiled[_by_dialect(key)] = compiled


STATEMENTS = Statements()


def _by_dialect(key):
    dialect, *rest = key
    return (dialect.name, dialect.driver, *rest)


def _share_statements(connection):
    connection.engine._compiled_cache = STATEMENTS


def _compiling_once(compile_template):
    kept = {}

    def compile_once(self, source, name=None, filename=None, raw=False, defer_init=False):
        key = (source, name, filename, raw, defer_init, self.autoescape, self.trim_blocks, self.lstrip_blocks)
        if not isinstance(source, str):
            return compile_template(self, source, name, filename, raw, defer_init)
        if key not in kept:
            kept[key] = compile_template(self, source, name, filename, raw, defer_init)
        return kept[key]

    return compile_once


def _reading_paths_once(read_path):
    kept = {}

    def init(self, path, *, name=None):
        if path not in kept:
            read_path(self, path, name=name)
            kept[path] = self._pattern, self._formatter
        self._name = name
        self._routes, self._any_route, self._allowed_methods = {}, None, set()
        self._orig_path = path
        self._pattern, self._formatter = kept[path]

    return init


def _looking_once(look):
    """Remember which functions are coroutine functions, as handlers have to be: by code, which keeps no bot alive."""
    seen = {}

    def init(self, method, handler, *, expect_handler=None, resource=None):
        known = (method, getattr(handler, "__code__", None))
        if known not in seen or expect_handler is not None:
            look(self, method, handler, expect_handler=expect_handler, resource=resource)
            if self._handler is handler and known[1] is not None and expect_handler is None:
                seen[known] = self._method, self._expect_handler
            return
        self._method, self._expect_handler = seen[known]
        self._handler = handler
        self._resource = resource

    return init
