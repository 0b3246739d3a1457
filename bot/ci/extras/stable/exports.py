"""What sinks may have copies of: each move of a branch's last good commit."""

from __future__ import annotations

from bot.ci.extras.stable.tables import stable_push
from bot.db.exports import Export
from bot.db.object_copies import ROW_SHAPES

EXPORTS = (Export(name="stable_pushes", table=stable_push, day="at", shapes=ROW_SHAPES),)
