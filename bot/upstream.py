"""How is upstream's name spelled? GitHub does not mind the letters' case; our rows, keys and tasks have one spelling.

It is the one that rows have already: settings that are typed anew, or an owner who changes the case of a letter, would
leave what was said so far, and the check runs it was said by, with another upstream. Without rows it is the settings'.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bot.domain.reading import decode
from bot.store import names
from bot.store.tables import oot_dispatch, oot_workflow_job

if TYPE_CHECKING:
    from bot.settings import Settings
    from bot.store import Store


async def settle(store: Store, settings: Settings) -> Settings:
    """Return the settings with upstream's names spelled as rows of ours do."""
    async with store.read() as tx:
        told = await names.of_upstreams(tx, oot_dispatch)
        heard = await names.of_upstreams(tx, oot_workflow_job)
    # what was first said rules: what a dispatch was about before what a relay passed on, the settings last
    known = {
        name.casefold(): name
        for some in (settings.upstream_repo, sorted(heard), sorted(told))
        for name in some
    }
    chosen = dict.fromkeys(known[name.casefold()] for name in settings.upstream_repo)
    return replace(settings, upstream_repo=tuple(chosen))


def named(settings: Settings, repo: str) -> str:
    """Return a repository's name, upstream's in the one spelling."""
    folded = repo.casefold()
    return next((name for name in settings.upstream_repo if name.casefold() == folded), repo)


def read(settings: Settings, body: bytes) -> dict[str, Any]:
    """Return what a delivery says, about upstream in the one spelling; raises Unreadable."""
    said: dict[str, Any] = decode(body)
    about = said.get("repository")
    if isinstance(about, dict) and isinstance(name := about.get("full_name"), str):
        about["full_name"] = named(settings, name)
    return said
