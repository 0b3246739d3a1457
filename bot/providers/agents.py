"""Buildkite's agents: where they are in their life, by the event that was received last.

Buildkite sends no time with these events. Of two received at once, the later one of an agent's life counts.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from bot.core.json_fields import Kind, read_member
from bot.providers import normal_form as read
from bot.providers.events import AGENT_STATES

if TYPE_CHECKING:
    from bot.providers.normal_form import Json
    from bot.providers.tables import ProviderAgentRow

CONNECTED, LOST = "connected", "lost"
DEFAULT_QUEUE = "default"
TAGS_MOST = 50
ADDRESS = re.compile(r"https?://[^/?#]+/(?:v2/)?organizations/([A-Za-z0-9._-]{1,100})/agents/")


def find_organization(*addresses: object) -> str:
    """Return the organization of an agent, by its addresses on Buildkite's pages and in its API; "" without any."""
    for address in addresses:
        if isinstance(address, str) and (found := ADDRESS.match(address)):
            return found[1].casefold()
    return ""


def read_agent(data: Json, event: str, *, received_at: int) -> ProviderAgentRow:
    """Return an agent as an event tells of it."""
    tags = (read_member(data, ("agent", "meta_data"), Kind.TEXTS) or [])[:TAGS_MOST]
    tags = [tag[: read.ID_MOST] for tag in tags]
    queue = next((tag.partition("=")[2] for tag in tags if tag.startswith("queue=")), "") or DEFAULT_QUEUE
    state = event.partition(".")[2]
    return {
        "organization": find_organization(data["agent"].get("web_url"), data["agent"].get("url")),
        "agent_id": read.read_id(data, "agent", "id"),
        "name": read.read_text(data, "agent", "name"),
        "queue": queue,
        "tags": tags,
        "state": state,
        "at": received_at,
        "version": f"{received_at:015d}:{AGENT_STATES.index(state)}",
    }
