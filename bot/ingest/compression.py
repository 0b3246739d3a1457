"""How are the bodies of deliveries stored? Compressed, each on its own: they are written once and seldom read again.

GitHub's bodies shrink to between a fifth and a tenth, which saves more time for writing than it takes.
"""

from __future__ import annotations

import zlib

from bot.core.zstd import zstd

LEVEL = 1  # 3 takes half as long again for five percent
LARGE = 256 * 1024  # bytes: whatever a larger body needs would keep others waiting
CODEC = "zstd"

_compressor = zstd.ZstdCompressor(LEVEL)  # one for all: making one takes as long as most bodies do


def compress(body: bytes) -> bytes:
    """Return a body as it is stored, with CODEC."""
    if len(body) > LARGE:  # it would keep other threads waiting for the common compressor
        return zstd.compress(body, LEVEL)
    return _compressor.compress(body, zstd.ZstdCompressor.FLUSH_FRAME)


def decompress(stored: bytes, codec: str | None) -> bytes:
    """Return a body as it was received; without a codec, as of some older ones, it is stored like that."""
    if codec == CODEC:
        return zstd.decompress(stored)
    return zlib.decompress(stored) if codec == "zlib" else stored


def is_large(stored: bytes, codec: str | None) -> bool:
    """Return whether a body is large as it was received; one compressed by zlib does not say."""
    size = zstd.get_frame_info(stored).decompressed_size if codec == CODEC else None
    return (len(stored) if size is None else size) > LARGE
