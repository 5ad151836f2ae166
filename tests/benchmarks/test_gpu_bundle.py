"""The bundle for GPU machines without network: one chip's code, and the right releases."""

import struct

import pytest

from benchmarks.gpu_check.bundle import requirements
from benchmarks.gpu_check.fat_binaries import (
    CONTAINER,
    CUBIN,
    ENTRY,
    MAGIC,
    MOST_PTX,
    PTX,
    containers,
    for_chip,
)


def container(*entries: tuple[int, int, bytes]) -> bytes:
    packed = b"".join(
        ENTRY.pack(kind, 1, ENTRY.size, len(code), 0, 0, 0, chip) + code
        for kind, chip, code in entries
    )
    return CONTAINER.pack(struct.unpack("<I", MAGIC)[0], 1, CONTAINER.size, len(packed)) + packed


def codes(data: bytes) -> list[list[bytes]]:
    return [[data[e.at : e.at + e.size] for e in entries] for entries in containers(data)]


def test_the_code_for_other_chips_is_zeroed() -> None:
    data = b"ELF" + container(
        (CUBIN, 80, b"ampere"), (CUBIN, 90, b"hopper"), (CUBIN, 100, b"blackwell")
    )
    data += b"between" + container((CUBIN, 80, b"old"), (PTX, 70, b"seventy"), (PTX, 80, b"eighty"))
    made = for_chip(data, 90)
    assert len(made) == len(data)
    assert made.startswith(b"ELF")
    assert b"between" in made
    assert codes(made) == [
        [bytes(6), b"hopper", bytes(9)],
        [bytes(3), bytes(7), b"eighty"],
    ]


def test_large_assembly_and_code_for_newer_chips_are_left_out() -> None:
    large = b"x" * (MOST_PTX + 1)
    made = for_chip(container((PTX, 80, large), (PTX, 100, b"newer")), 90)
    assert codes(made) == [[bytes(len(large)), bytes(5)]]


def test_the_same_bytes_by_chance_are_no_container() -> None:
    data = MAGIC + b"\0\0not one" + container((CUBIN, 90, b"hopper"))
    assert for_chip(data, 90) == data


def test_an_entry_beyond_its_container_is_refused() -> None:
    data = bytearray(container((CUBIN, 90, b"hopper")))
    struct.pack_into("<Q", data, CONTAINER.size + 8, 1000)
    with pytest.raises(ValueError, match="entry at byte 16 goes beyond"):
        for_chip(bytes(data), 90)


def test_pins_of_vllm_come_first() -> None:
    needs = ["xgrammar==0.2.8; platform_machine == 'x86_64'", "openai>=2.25", "torch==2.13.0"]
    pins = ["# made by", "xgrammar==0.2.1", "openai==3.52.0", "lark==1.2.2", "torch==2.13.0+cpu"]
    wanted, left = requirements(needs, ["# names", "xgrammar", "lark", "openai"], pins)
    assert wanted == ["xgrammar==0.2.8", "lark", "openai"]
    assert left == ["openai==3.52.0", "lark==1.2.2"]
