"""Parquet of `ootbot export`: the values of a file of text, with their types."""

from __future__ import annotations

import pytest

from bot.console.export import _write_parquet
from bot.db.exports import ColumnTable, TableCopy


@pytest.mark.nightly
def test_parquet_tells_null_from_an_empty_text(tmp_path):
    duckdb = pytest.importorskip("duckdb")
    table = ColumnTable(name="x", columns={"id": "Int64", "text": "Nullable(String)"}, order=("id",))
    copy = TableCopy(table=table, rows=lambda row: (row,), key=("id",), key_values=lambda key, _row: key)
    lines = tmp_path / "rows.csv"
    lines.write_text('id,text\n1,""\n2,\\N\n3,"a ""b""\nc"\n')
    _write_parquet(copy, lines, tmp_path / "x.parquet")
    assert duckdb.read_parquet(str(tmp_path / "x.parquet")).fetchall() == [
        (1, ""),
        (2, None),
        (3, 'a "b"\nc'),
    ]
