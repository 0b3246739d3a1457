"""What do people and pipelines act on? The world and the delivery service, under one roof."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.clock import SystemClock
from bot.demo.github.background import Background
from bot.demo.github.faults import Faults
from bot.demo.github.hooks import Hooks
from bot.demo.github.world import World

if TYPE_CHECKING:
    from bot.clock import Clock
    from bot.demo.github.records import Delivery, Event


class Stage:
    """A world in which events are told to Apps."""

    def __init__(self, *, clock: Clock | None = None) -> None:
        self.world = World(clock or SystemClock())
        self.faults = Faults()
        self.hooks = Hooks(self.world, self.faults)
        self.background = Background()

    async def tell(self, *events: Event) -> list[Delivery]:
        """Send the webhooks of these events, one event after the other; return the deliveries."""
        return [delivery for event in events for delivery in await self.hooks.emit(event)]
