"""Write the first migration from the tables: `python3 dev.py generate` runs this until the first release.

After it, tables change by further migrations only, and this file goes.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import textwrap

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

import bot
from bot.db.migrate import FOLDER
from bot.db.rows import metadata

FILE = FOLDER / "versions" / "0001_first_tables.py"
WIDTH = 110
DIALECTS = sqlite.dialect(), postgresql.dialect()
KINDS = {  # what a column's type is called on both databases -> its name in the migration
    ("INTEGER", "BIGINT"): "Big",
    ("INTEGER", "INTEGER"): "Integer",
    ("SMALLINT", "SMALLINT"): "Small",
    ("TEXT", "TEXT"): "Text",
    ("BOOLEAN", "BOOLEAN"): "Boolean",
    ("JSON", "JSONB"): "Json",
    ("BLOB", "BYTEA"): "Bytes",
    ("FLOAT", "FLOAT(53)"): "Float",
}
HEAD = '''"""The first tables, as `python3 dev.py generate` writes them from the code until the first release."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision, down_revision, branch_labels, depends_on = "0001", None, None, None

Big = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
Json = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")
Integer, Small, Float = sa.Integer(), sa.SmallInteger(), sa.Float(53)
Text, Boolean, Bytes = sa.Text(), sa.Boolean(), sa.LargeBinary()


def column(name: str, kind: Any, **options: Any) -> sa.Column[Any]:
    return sa.Column(name, kind, nullable=True, **options)


def must(name: str, kind: Any, **options: Any) -> sa.Column[Any]:
    return sa.Column(name, kind, nullable=False, **options)


def table(name: str, *parts: sa.schema.SchemaItem, key: list[str], **options: Any) -> None:
    op.create_table(name, *parts, sa.PrimaryKeyConstraint(*key, name=f"pk_{name}"), **options)


def index(
    name: str, table: str, *columns: Any, where: str = "", where_on_postgresql: str = "", **options: Any
) -> None:
    if where:
        options["sqlite_where"] = sa.text(where)
        options["postgresql_where"] = sa.text(where_on_postgresql or where)
    op.create_index(name, table, columns, **options)


# fmt: off
def upgrade() -> None:
'''
LAST = """    op.execute("INSERT INTO schema_support (oldest) VALUES ('0001')")\n"""


def text() -> str:
    """Return the migration's text: every table with its indexes, by name."""
    for module in pkgutil.walk_packages(bot.__path__, "bot."):  # any of them may declare tables
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:  # of an extra, which declares none
            if (error.name or "").partition(".")[0] in {"bot", "handlers"}:
                raise
    made = [HEAD]
    for table in sorted(metadata.tables.values(), key=lambda each: each.name):
        made.append(_call("table", [_quoted(table.name), *_parts(table), *_options(table)]))
        made += [_index(each) for each in sorted(table.indexes, key=lambda each: each.name)]
    return "".join([*made, LAST])


def _parts(table):
    """The arguments that say what a table consists of."""
    if table.primary_key.name != f"pk_{table.name}":
        raise NotImplementedError(f"{table.name}: its primary key is named {table.primary_key.name}")
    others = sorted(table.constraints - {table.primary_key}, key=lambda each: each.columns.keys())
    key = ", ".join(_quoted(each.name) for each in table.primary_key.columns)
    columns = [_column(each) for each in table.columns]
    return [*columns, *(_unique(table, each) for each in others), f"key=[{key}]"]


def _column(column):
    """`must("day", Integer)`."""
    kind = tuple(column.type.compile(dialect=dialect) for dialect in DIALECTS)
    if kind not in KINDS:
        raise NotImplementedError(f"{column}: the first migration has no name for the type {kind} yet")
    arguments = [_quoted(column.name), KINDS[kind]]
    if column.autoincrement != "auto":
        arguments.append(f"autoincrement={column.autoincrement}")
    if column.server_default is not None:
        arguments.append(f"server_default={_default(column.server_default.arg)}")
    return f"{'column' if column.nullable else 'must'}({', '.join(arguments)})"


def _default(given):
    if isinstance(given, str):
        return _quoted(given)
    return f"sa.text({_quoted(given.text)})" if isinstance(given, sa.TextClause) else f"sa.{given}()"


def _unique(table, constraint):
    """`sa.UniqueConstraint("guid")`."""
    if type(constraint) is not sa.UniqueConstraint:
        raise NotImplementedError(f"{table.name}: the first migration has no form for {constraint!r} yet")
    named = [f"name={_quoted(constraint.name)}"] if constraint.name else []
    return f"sa.UniqueConstraint({', '.join([*map(_quoted, constraint.columns.keys()), *named])})"


def _index(index):
    """`index("ix_table_day", "table", "day")`."""
    where = [index.dialect_options[dialect.name]["where"] for dialect in DIALECTS]
    columns = [
        _quoted(each.name) if isinstance(each, sa.Column) else f"sa.text({_quoted(_same(each))})"
        for each in index.expressions
    ]
    options = ["unique=True"] if index.unique else []
    if where[0] is not None:
        here, there = (_sql(each, dialect) for each, dialect in zip(where, DIALECTS, strict=True))
        options.append(f"where={_quoted(here)}")
        options += [f"where_on_postgresql={_quoted(there)}"] if there != here else []
    others = [each for each in _options(index) if "_where=" not in each]
    return _call("index", [_quoted(index.name), _quoted(index.table.name), *columns, *options, *others])


def _options(item):
    """What is special to one database."""
    given = sorted(item.dialect_kwargs.items())
    return [
        f"{name}={json.dumps(value) if isinstance(value, dict) else repr(value)}" for name, value in given
    ]


def _same(expression):
    here, there = (_sql(expression, dialect) for dialect in DIALECTS)
    if here != there:
        raise NotImplementedError(f"{here} or {there}: the first migration has no form for both yet")
    return here


def _sql(expression, dialect):
    """An expression as it stands in an index, escaped for `sa.text`."""
    compiler = dialect.ddl_compiler(dialect, None).sql_compiler
    return compiler.process(expression, include_table=False, literal_binds=True).replace(":", r"\:")


def _quoted(value):
    """A text as the formatter writes it."""
    return repr(value) if '"' in value else f'"{value}"'


def _call(function, arguments):
    """A call on one line where it fits, else with its arguments in lines that are filled."""
    line = f"    {function}({', '.join(arguments)})\n"
    if len(line) <= WIDTH + 1:
        return line
    lines, indent = [""], 8
    for argument in arguments:
        if len(lines[-1]) + len(argument) + indent + 2 > WIDTH:
            lines.append("")
        lines[-1] += f" {argument}," if lines[-1] else f"{argument},"
    return f"    {function}(\n{textwrap.indent(chr(10).join(lines), ' ' * indent)}\n    )\n"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
