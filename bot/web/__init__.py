"""The doors: what comes in over HTTP, one module a door. They store and read; they never call the world."""

from __future__ import annotations
