"""What the readers of notices, feeds and badges may not see: private repositories, backends among them.

Notices leave this bot, and badges stand in pages of others: unlike a page they tell nothing of a private backend.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.oot.allowlist import rows as allowlists
from bot.oot.results import rows as results
from bot.web.access import Hidden

if TYPE_CHECKING:
    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.notify.tables import NoticeRow

NOTHING_HIDDEN = Hidden(names=frozenset(), ids=frozenset())


async def hidden_of(tx: Transaction, settings: Settings, audience: str, *also: str) -> Hidden:
    """Return what an audience may not see, of upstream, of the backends and of some further repositories.

    As on pages, upstream is private until GitHub has said otherwise, a backend once it has said so.
    """
    if audience == "private":
        return NOTHING_HIDDEN
    allowlist = await allowlists.in_force(tx)
    backends = {entry.repo for entry in (allowlist.entries if allowlist else ())}
    private = await results.private(tx, settings, backends | {*also})
    return Hidden(names=private.names, ids=private.ids)


def is_hidden(hidden: Hidden, notice: NoticeRow) -> bool:
    """Whether a notice is about what may not be seen: a repository may have become private since it was written."""
    return hidden.has(notice["repo"]) or hidden.has(notice["backend"])
