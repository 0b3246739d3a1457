"""approve: somebody put `oot/ok-to-test` on a pull request (key: the labeled delivery's GUID).

It counts when GitHub says that this person may write to the repository, and only for the head that the label was
put on: what is pushed later needs it again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from bot import relay
from bot.domain.authors import may_write
from bot.errors import GiveUp
from bot.tasks import subject

if TYPE_CHECKING:
    from bot.context import Context
    from bot.store.queue import Task

log = structlog.get_logger("bot.tasks.approve")


async def run(context: Context, task: Task) -> None:
    """Let the head go to the backends that held it back, if whoever labelled it may say so."""
    async with context.store.read() as tx:
        _, body = await subject.delivery(context, tx, task)
    try:
        repo, login = body["repository"]["full_name"], body["sender"]["login"]
        number, head = body["pull_request"]["number"], body["pull_request"]["head"]["sha"]
    except (KeyError, TypeError) as error:
        raise GiveUp(f"the labeled event lacks what an approval needs: {error!r}") from error
    if not context.settings.is_upstream(repo):
        return
    role = await context.github.role(repo, login)
    if not may_write(role):
        log.warning("label without effect", repo=repo, pull=number, login=login, role=role)
        return
    async with context.store.transaction() as tx:
        await relay.approve(tx, repo, number, head, login)
    log.info("approved", repo=repo, pull=number, head=head, login=login)
