"""What is stored of logs and failures: every statement of this capability."""

from __future__ import annotations
