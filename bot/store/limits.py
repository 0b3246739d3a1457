"""How long may a backend be silent? Each one's own time or the general one, told apart in SQL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Milliseconds by backend (name case folded), and for all others."""

    default: int
    own: Mapping[str, int]

    def of(self, backend: str) -> int:
        """Return one backend's."""
        return self.own.get(backend.casefold(), self.default)

    @property
    def shortest(self) -> int:
        """What nobody may be silent for without being looked at."""
        return min([self.default, *self.own.values()])

    def since(self, now: int, backend_key: sa.ColumnElement[Any]) -> sa.ColumnElement[int]:
        """Return the time before which silence is too long, for the backend of a row."""
        if not self.own:
            return sa.literal(now - self.default, sa.BigInteger)
        whens = {key: sa.literal(now - limit, sa.BigInteger) for key, limit in sorted(self.own.items())}
        return sa.case(whens, value=backend_key, else_=sa.literal(now - self.default, sa.BigInteger))
