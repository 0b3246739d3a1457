"""Lists that CI is planned with: how long tests take, by file, class and test, and suites cut into equal shards."""

from __future__ import annotations
