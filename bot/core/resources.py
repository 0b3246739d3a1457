"""Objects that live as long as the bot and are made on first use: processes, connections to other stores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable


class Closable(Protocol):
    """An object that can be closed."""

    async def close(self) -> None:
        """Release what it holds."""
        ...


T = TypeVar("T", bound=Closable)


@dataclass(frozen=True)
class Resource(Generic[T]):
    """The name of one such object, and how it is made."""

    name: str
    make: Callable[[Any], T]  # from the context


class Resources:
    """Makes such objects on first use, and closes them."""

    def __init__(self) -> None:
        self._made: dict[str, Any] = {}

    def get(self, resource: Resource[T], context: object) -> T:
        """Return an object, made on first use."""
        if resource.name not in self._made:
            self._made[resource.name] = resource.make(context)
        found: T = self._made[resource.name]
        return found

    async def close(self) -> None:
        """Close all that were made, the newest first."""
        while self._made:
            _, made = self._made.popitem()
            await made.close()
