"""The filter of system calls, run by a small interpreter of its instructions."""

import struct

import pytest

from caesura.tools.code import kernel
from caesura.tools.code.kernel import filter_program

ALLOW, KILL, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}


def decision(machine: str, number: int, *arguments: int, architecture: int = 0) -> int:
    """Return what the filter decides about a call."""
    padded = (*arguments, 0, 0, 0, 0, 0, 0)[:6]
    data = struct.pack("=IIQ6Q", number, architecture or ARCHITECTURES[machine], 0, *padded)
    program = list(struct.iter_unpack("HBBI", filter_program(machine)))
    place = value = 0
    while True:
        code, if_true, if_false, operand = program[place]
        place += 1
        match code:
            case 0x20:
                (value,) = struct.unpack_from("=I", data, operand)
            case 0x54:
                value &= operand
            case 0x15 | 0x35:
                holds = value == operand if code == 0x15 else value >= operand
                place += if_true if holds else if_false
            case 0x06:
                return int(operand)
            case _:
                raise AssertionError(f"unknown instruction {code:#x}")


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_calls_that_make_trouble_are_refused(machine: str) -> None:
    numbers = {**kernel._SAME, **kernel._NUMBERS[machine]}
    checked = {"clone", "socket", "socketpair", "prlimit64", "capset"}
    for name, number in numbers.items():
        if name not in checked:
            assert decision(machine, number) & ~0xFFFF == ERRNO, name
    assert decision(machine, numbers["ptrace"]) == ERRNO | 1
    assert decision(machine, numbers["clone3"]) == ERRNO | 38
    assert decision(machine, 63) == ALLOW  # uname on one, read on the other


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_first_arguments_count(machine: str) -> None:
    numbers = kernel._NUMBERS[machine]
    assert decision(machine, numbers["clone"], 0x01200011) == ALLOW
    for flag in kernel._ALL_NAMESPACES:
        assert decision(machine, numbers["clone"], 0x11 | flag) == ERRNO | 1
    for name in ("socket", "socketpair"):
        assert [decision(machine, numbers[name], family) for family in (1, 2, 10)] == [ALLOW] * 3
        for family in (0, 16, 17, 38, 40):
            assert decision(machine, numbers[name], family) == ERRNO | 97
    assert decision(machine, numbers["prlimit64"], 0, 7) == ALLOW
    assert decision(machine, numbers["prlimit64"], 1, 7) == ERRNO | 1


def test_calls_of_another_architecture_end_the_process() -> None:
    assert decision("x86_64", 11, architecture=0x40000003) == KILL
    assert decision("x86_64", 0x40000000 | 101) == KILL
    assert decision("aarch64", 11, architecture=0x40000028) == KILL
