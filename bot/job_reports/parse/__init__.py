"""What reads small documents, in the parser child."""

from __future__ import annotations
