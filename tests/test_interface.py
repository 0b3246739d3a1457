"""Does the public interface stay as it is? OpenAPI document, routes and tables, each compared with a kept text.

A change that is meant is made visible with UPDATE_SNAPSHOTS=1, and reviewed as a difference of tests/interface/.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from bot.app import make_app, operations
from bot.core.feature import import_tables
from bot.db.rows import metadata
from bot.features import FEATURES
from bot.web.openapi_document import OPERATION, document

KEPT = Path(__file__).parent / "interface"


def kept(name, text):
    """Return the text kept under a name, written first where the environment asks for it."""
    file = KEPT / name
    if os.environ.get("UPDATE_SNAPSHOTS") == "1":
        file.write_text(text, encoding="utf-8")
    return file.read_text(encoding="utf-8")


def openapi():
    """The OpenAPI document, as it is sent."""
    content = document("http://127.0.0.1", [*operations(FEATURES), OPERATION])
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def tables(dialect):
    """The statements that make every table and index."""
    import_tables(FEATURES)
    made = []
    for table in sorted(metadata.tables.values(), key=lambda one: one.name):
        made.append(str(sa.schema.CreateTable(table).compile(dialect=dialect)).strip())
        indexes = sorted(table.indexes, key=lambda one: one.name)
        made += [str(sa.schema.CreateIndex(index).compile(dialect=dialect)).strip() for index in indexes]
    return "\n".join(line.rstrip() for text in made for line in text.splitlines()) + "\n"


async def test_the_openapi_document_is_as_it_was():
    assert openapi() == kept("openapi.json", openapi())


@pytest.mark.parametrize("dialect", [sqlite.dialect(), postgresql.dialect()], ids=["sqlite", "postgresql"])
def test_tables_are_made_as_they_were(dialect):
    assert tables(dialect) == kept(f"tables-{dialect.name}.sql", tables(dialect))


@pytest.mark.logic
async def test_routes_are_as_they_were(bot):
    app = make_app(bot.context)
    found = {f"{route.method} {route.resource.canonical}" for route in app.router.routes()}
    text = "\n".join(sorted(found)) + "\n"
    assert text == kept("routes.txt", text)
