"""How are the bodies of deliveries stored? Compressed, each on its own: they are written once and seldom read again.

GitHub's bodies shrink to between a fifth and a tenth, which takes about as long as writing less saves.
"""

from __future__ import annotations

import zlib

from bot.core.zstd import zstd

LEVEL = 1  # 3 takes half as long again for five percent
LARGE = 256 * 1024  # bytes: compressing or reading a larger body would keep others waiting
CODEC = "zstd"

_compressor = zstd.ZstdCompressor(LEVEL)  # one for all: making one takes as long as most bodies do


def compress(body: bytes) -> bytes:
    """Return a body as it is stored, with CODEC."""
    if len(body) > LARGE:  # it would keep other threads waiting for the common compressor
        return zstd.compress(body, LEVEL)
    return _compressor.compress(body, zstd.ZstdCompressor.FLUSH_FRAME)


def decompress(stored: bytes, codec: str | None) -> bytes:
    """Return a body as it was received: some older ones are stored like that, without a codec."""
    if codec == CODEC:
        return zstd.decompress(stored)
    return zlib.decompress(stored) if codec == "zlib" else stored


def size(stored: bytes, codec: str | None) -> int:
    """Return the bytes of a body as it was received; as stored where it was compressed by zlib, which does not tell."""
    inflated = zstd.get_frame_info(stored).decompressed_size if codec == CODEC else None
    return len(stored) if inflated is None else inflated
