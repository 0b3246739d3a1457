"""Is everything as it has to be? What `ootbot doctor` looks at, each with the next step."""

from __future__ import annotations
