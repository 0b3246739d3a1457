"""Which upstream commit broke a backend? Found by running the backend on commits of the branch."""

from __future__ import annotations
