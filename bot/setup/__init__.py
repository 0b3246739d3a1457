"""How does an operator come to an App and its settings? What `ootbot init` does: a page, GitHub's answer, files."""

from __future__ import annotations
