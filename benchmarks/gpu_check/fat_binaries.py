"""Making CUDA libraries small: the code for other chips is zeroed, so that it packs to nothing.

A library's `.nv_fatbin` section is a row of containers, each with the same kernels for several
chips, compiled (cubins) or as assembly (PTX). CUDA reads the headers, which stay as they are, and
loads the entry that fits its chip best.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

MAGIC = struct.pack("<I", 0xBA55ED50)
CONTAINER = struct.Struct("<IHHQ")
"""Magic, version, bytes of this header, bytes of the entries behind it."""
ENTRY = struct.Struct("<HHIQIIII")
"""Kind, version, bytes of this header, bytes of the code, packed bytes, two more, chip."""
PTX, CUBIN = 1, 2
MOST_PTX = 300_000
"""Larger kernels that a chip would have to compile by itself are left out."""


@dataclass(frozen=True)
class Entry:
    """The code of a container for one chip: `chip` is 90 for compute capability 9.0."""

    kind: int
    chip: int
    at: int
    size: int


def containers(data: bytes | bytearray) -> Iterator[list[Entry]]:
    """Yield the entries of each container; raises `ValueError` for one that is cut off."""
    at = 0
    while (at := data.find(MAGIC, at)) >= 0:
        _, version, header, size = CONTAINER.unpack_from(data, at)
        if version != 1 or header != CONTAINER.size or at + header + size > len(data):
            at += len(MAGIC)  # the same bytes by chance
            continue
        end, at, entries = at + header + size, at + header, []
        while at < end:
            kind, _, before, code, _, _, _, chip = ENTRY.unpack_from(data, at)
            if before < ENTRY.size or at + before + code > end:
                raise ValueError(f"an entry at byte {at} goes beyond its container")
            entries.append(Entry(kind, chip, at + before, code))
            at += before + code
        yield entries
        at = end


def for_chip(data: bytes, chip: int) -> bytes:
    """Return a library whose code for other chips is zeroed."""
    made = bytearray(data)
    for entries in containers(data):
        kept = _best(entries, chip)
        for entry in entries:
            if entry not in kept:
                made[entry.at : entry.at + entry.size] = bytes(entry.size)
    return bytes(made)


def _best(entries: list[Entry], chip: int) -> list[Entry]:
    compiled = [entry for entry in entries if entry.kind == CUBIN and entry.chip == chip]
    if compiled:
        return compiled
    assembly = [entry for entry in entries if entry.kind == PTX and entry.chip <= chip]
    newest = max((entry.chip for entry in assembly), default=0)
    found = [entry for entry in assembly if entry.chip == newest]
    return found if sum(entry.size for entry in found) <= MOST_PTX else []
