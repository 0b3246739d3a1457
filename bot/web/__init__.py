"""HTTP serving: server, middleware, limits, sign-in, page cache, render thread, page kit, OpenAPI."""

from __future__ import annotations
