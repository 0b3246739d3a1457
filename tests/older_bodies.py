"""Deliveries in the forms that earlier versions stored them in: as received, or compressed by zlib an hour later."""

from __future__ import annotations

import zlib
from typing import Literal

import sqlalchemy as sa

from bot.ingest.tables import delivery

OLDER: tuple[None, Literal["zlib"]] = (None, "zlib")


async def as_stored_before(bot, codec: Literal["zlib"] | None) -> None:
    """Have everything in the inbox as it was stored with that codec."""
    for row in await bot.rows("delivery"):
        body = await bot.body(row["guid"])
        old = {"codec": codec, "body": zlib.compress(body) if codec else body}
        async with bot.store.transaction() as tx:
            await tx.run(sa.update(delivery).where(delivery.c.id == row["id"]).values(old))
