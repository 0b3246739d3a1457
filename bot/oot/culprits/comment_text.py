"""The comment on the culprit's pull request. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.core import escaping

if TYPE_CHECKING:
    from bot.oot.culprits.tables import BisectRow


def marker(identifier: str) -> str:
    """Return what the comment begins with."""
    return f"<!-- ootbot:culprit {identifier} -->"


def render_comment(search: BisectRow, url: str) -> str:
    """Return the comment: the sentence, what a reader can do, and where the evidence is."""
    page = f"{url}/{search['upstream_repo']}/bisects/{search['id']}"
    job = escaping.code(search["job"])
    test = f", test {escaping.code(search['test'])}" if search["test"] else ""
    return (
        f"{marker(search['id'])}\n"
        f"{escaping.text(search['why'])}\n\n"
        f"Job {job}{test}. This was found by running it on commits of {escaping.code(search['branch'])}: "
        f"{escaping.link('the runs and their results', page)}.\n"
    )
