"""`ootbot init`: registering the App in a browser, and writing settings and keys."""

from __future__ import annotations
