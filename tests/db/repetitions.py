"""Finds classes that declare columns of a table once more, in place of using its row class."""

import ast
import importlib
from collections import Counter
from pathlib import Path

import sqlalchemy as sa

from bot.core.feature import import_tables
from bot.db.rows import metadata
from bot.features import FEATURES

ROOT = Path(__file__).parents[2]
FEWEST = (
    3  # columns of one table in one class, and half of what it has: fewer may have the same names by chance
)
NO_ROWS = (
    "bot/core/",
    "bot/db/",
    "bot/web/",
    "bot/github/",
    "bot/demo/",
)  # below, or beside, all that has tables
PYTHON = {
    sa.Text: "str", sa.BigInteger: "int", sa.Integer: "int", sa.Boolean: "bool", sa.Float: "float",
    sa.LargeBinary: "bytes", sa.JSON: "json",
}  # fmt: skip
ALIASES = {
    "Text": "str", "Big": "int", "Int": "int", "Millis": "int", "Time": "int", "Bool": "bool", "Float": "float",
    "Bytes": "bytes", "Any": "json", "list": "json", "dict": "json", "Json": "json",
}  # fmt: skip


def columns():
    """Return the columns of every table, by its name: (name, type) each."""
    import_tables(FEATURES)
    importlib.import_module("bot.queue.tasks")
    return {
        name: {(column.name, _of_column(column)) for column in table.columns}
        for name, table in metadata.tables.items()
    }


def row_classes():
    """Return the classes that tables are made of: (file, name) each."""
    named = [kind for table in metadata.tables.values() for kind in table.info.get("rows", ())]
    return {(f"{kind.__module__.replace('.', '/')}.py", kind.__name__) for kind in named}


def repetitions():
    """Return how many columns are declared once more, by file."""
    tables, counts = columns(), Counter()
    rows = row_classes()
    for top in ("bot", "handlers"):
        for path in (ROOT / top).rglob("*.py"):
            file = str(path.relative_to(ROOT))
            if file.startswith(NO_ROWS) or "/parse/" in file:  # no child that parses files loads tables
                continue
            classes = [
                node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ClassDef)
            ]
            known = _with_bases({name for where, name in rows if where == file}, classes)
            for node in classes:
                if node.name in known or any(word.arg == "row" for word in node.keywords):
                    continue
                declared = _declared(node)
                most = max(len(declared & own) for own in tables.values())
                if most >= FEWEST and most * 2 >= len(declared):
                    counts[file] += most
    return dict(counts)


def _with_bases(known, classes):
    """Return names of classes, and of those in the same file that they are put together from."""
    bases = {node.name: {base.id for base in node.bases if isinstance(base, ast.Name)} for node in classes}
    while more := {base for name in known for base in bases.get(name, ()) if base in bases} - known:
        known = known | more
    return known


def _declared(node):
    return {
        (line.target.id, _of_annotation(line.annotation))
        for line in node.body
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name)
    }


def _of_annotation(node):
    if isinstance(node, ast.BinOp):  # X | None
        return _of_annotation(node.left)
    if isinstance(node, ast.Subscript):
        if getattr(node.value, "id", "") == "Annotated":
            return _of_annotation(node.slice.elts[0])
        return _of_annotation(node.value)
    name = getattr(node, "id", "")
    return ALIASES.get(name, name)


def _of_column(column):
    return next(python for kind, python in PYTHON.items() if isinstance(column.type, kind))
