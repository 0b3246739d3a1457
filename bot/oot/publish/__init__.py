"""Check runs, the gate and the comment on a pull request."""

from __future__ import annotations
