"""The repositories' own CI, as the App collects it."""

from __future__ import annotations
