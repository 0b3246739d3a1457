"""The HUD's pages and JSON."""

from __future__ import annotations
