"""A ClickHouse to write to, and what its tables hold."""

from __future__ import annotations

import clickhouse_connect


def sink_of(port, database="ootbot", **options):
    """The table of a sink that writes there."""
    return {
        "kind": "clickhouse", "url": f"http://ci@127.0.0.1:{port}", "database_map": "ootbot", "database": database,
        "manage_schema": True, "batch_seconds": 1,
    } | options  # fmt: skip


class Tables:
    """The engine behind the gateway."""

    def __init__(self, folder, port, database="default"):
        self.port = port
        self._database = database
        self._fault = folder / "fault"
        self._client = None

    async def rows(self, sql, parameters=None):
        found = await (await self._opened()).query(sql, parameters=parameters)
        return [dict(zip(found.column_names, row, strict=True)) for row in found.result_rows]

    async def change(self, *statements):
        for sql in statements:
            await (await self._opened()).command(sql)

    def fail(self, words):
        """Have it answer all requests with a status and words, or `cut`; empty: no longer."""
        self._fault.write_text(words) if words else self._fault.unlink(missing_ok=True)

    async def close(self):
        if self._client:
            await self._client.close()

    async def _opened(self):
        self._client = self._client or await clickhouse_connect.get_async_client(
            host="127.0.0.1", port=self.port, database=self._database, autogenerate_session_id=False
        )
        return self._client
