"""What the sandbox asks of Linux and Python has no function for: namespaces, mounts, filters.

The sandbox's own processes import this module, and nothing else of Caesura. It needs the standard
library alone. Every function raises OSError where the kernel refuses.
"""

import ctypes
import os
import platform
import struct

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x00020000, 0x04000000, 0x08000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
CLONE_NEWCGROUP, CLONE_NEWTIME = 0x02000000, 0x00000080
_ALL_NAMESPACES = (
    *(CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC, CLONE_NEWUSER),
    *(CLONE_NEWPID, CLONE_NEWNET, CLONE_NEWCGROUP, CLONE_NEWTIME),
)
MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_BIND = 0x2, 0x4, 0x8, 0x1000
MS_REC, MS_PRIVATE = 0x4000, 0x40000
MNT_DETACH = 2
READ_ONLY, NO_SETUID, NO_DEVICES = 0x1, 0x2, 0x4
"""Attributes of a mount, for `restrict`."""

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_SECCOMP = 1, 4, 22
_PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 24, 38
_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
_SECCOMP_MODE_FILTER = 2
_CAPABILITY_VERSION = 0x20080522
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000
_SIGKILL = 9

# The numbers of the calls that this module makes, and of those that the filter refuses.
_SAME = {
    "pidfd_getfd": 438,
    "io_uring_setup": 425,
    "io_uring_enter": 426,
    "io_uring_register": 427,
    "open_tree": 428,
    "move_mount": 429,
    "fsopen": 430,
    "fsconfig": 431,
    "fsmount": 432,
    "fspick": 433,
    "clone3": 435,
    "mount_setattr": 442,
    "quotactl_fd": 443,
    "memfd_secret": 447,
}
_NUMBERS = {
    "x86_64": {
        "clone": 56,
        "socket": 41,
        "socketpair": 53,
        "prlimit64": 302,
        "capset": 126,
        "pivot_root": 155,
        "ptrace": 101,
        "process_vm_readv": 310,
        "process_vm_writev": 311,
        "mount": 165,
        "umount2": 166,
        "chroot": 161,
        "unshare": 272,
        "setns": 308,
        "bpf": 321,
        "perf_event_open": 298,
        "add_key": 248,
        "request_key": 249,
        "keyctl": 250,
        "userfaultfd": 323,
        "kexec_load": 246,
        "kexec_file_load": 320,
        "init_module": 175,
        "finit_module": 313,
        "delete_module": 176,
        "reboot": 169,
        "swapon": 167,
        "swapoff": 168,
        "open_by_handle_at": 304,
        "name_to_handle_at": 303,
        "acct": 163,
        "quotactl": 179,
        "syslog": 103,
        "settimeofday": 164,
        "clock_settime": 227,
        "clock_adjtime": 305,
        "adjtimex": 159,
        "sethostname": 170,
        "setdomainname": 171,
        "fanotify_init": 300,
        "kcmp": 312,
        "lookup_dcookie": 212,
        "vhangup": 153,
        "iopl": 172,
        "ioperm": 173,
        "modify_ldt": 154,
        "memfd_create": 319,
        "shmget": 29,
        "msgget": 68,
        "semget": 64,
    },
    "aarch64": {
        "clone": 220,
        "socket": 198,
        "socketpair": 199,
        "prlimit64": 261,
        "capset": 91,
        "pivot_root": 41,
        "ptrace": 117,
        "process_vm_readv": 270,
        "process_vm_writev": 271,
        "mount": 40,
        "umount2": 39,
        "chroot": 51,
        "unshare": 97,
        "setns": 268,
        "bpf": 280,
        "perf_event_open": 241,
        "add_key": 217,
        "request_key": 218,
        "keyctl": 219,
        "userfaultfd": 282,
        "kexec_load": 104,
        "kexec_file_load": 294,
        "init_module": 105,
        "finit_module": 273,
        "delete_module": 106,
        "reboot": 142,
        "swapon": 224,
        "swapoff": 225,
        "open_by_handle_at": 265,
        "name_to_handle_at": 264,
        "acct": 89,
        "quotactl": 60,
        "syslog": 116,
        "settimeofday": 170,
        "clock_settime": 112,
        "clock_adjtime": 266,
        "adjtimex": 171,
        "sethostname": 161,
        "setdomainname": 162,
        "fanotify_init": 262,
        "kcmp": 272,
        "lookup_dcookie": 18,
        "vhangup": 58,
        "memfd_create": 279,
        "shmget": 194,
        "msgget": 186,
        "semget": 190,
    },
}
_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32_BIT = 0x40000000
_NOT_THERE = ("clone3", "memfd_create", "memfd_secret", "shmget", "msgget", "semget")
"""Calls that fail as if the kernel did not have them; libraries then take others.

`clone3` hides its flags from a filter. The others hold memory that no process shows as its own.
"""
_ALLOWED_AFTER_CHECK = ("clone", "socket", "socketpair", "prlimit64")
_FAMILIES = (1, 2, 10)
"""The kinds of sockets that can be made: AF_UNIX, AF_INET and AF_INET6."""
_EPERM, _ENOSYS, _EAFNOSUPPORT = 1, 38, 97

_libc = ctypes.CDLL(None, use_errno=True)


def supported() -> bool:
    """Return whether the numbers of this machine's system calls are known."""
    return platform.system() == "Linux" and platform.machine() in _NUMBERS


def _number(name: str) -> int:
    return {**_SAME, **_NUMBERS[platform.machine()]}[name]


def _checked(result: int, what: str) -> None:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")


def _call(name: str, *arguments: object) -> None:
    _checked(_libc.syscall(ctypes.c_long(_number(name)), *arguments), name)


def _prctl(option: int, *arguments: int) -> None:
    # Each argument is a whole register; ctypes would pass a number as an int.
    padded = [ctypes.c_ulong(each) for each in (*arguments, 0, 0, 0, 0)[:4]]
    _checked(_libc.prctl(ctypes.c_int(option), *padded), f"prctl {option}")


def unshare(flags: int) -> None:
    """Leave the namespaces of these kinds; the next child is in the new pid namespace."""
    _checked(_libc.unshare(ctypes.c_int(flags)), "unshare")


def mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    """Mount a file system, or bind a part of one."""
    texts = [text.encode() or None for text in (source, target, kind)]
    result = _libc.mount(*texts, ctypes.c_ulong(flags), options.encode() or None)
    _checked(result, f"mount {kind or source} at {target}")


def restrict(target: str, attributes: int, recursive: bool = True) -> None:
    """Take rights from a mount, and from all that is mounted beneath it."""
    wanted = struct.pack("QQQQ", attributes, 0, 0, 0)
    flags = _AT_RECURSIVE if recursive else 0
    path = ctypes.c_char_p(target.encode())
    size = ctypes.c_size_t(len(wanted))
    _call("mount_setattr", ctypes.c_int(_AT_FDCWD), path, ctypes.c_uint(flags), wanted, size)


def pivot_root(new: str, old: str) -> None:
    """Make `new` the root, and mount the old one at `old`, which lies beneath it."""
    _call("pivot_root", ctypes.c_char_p(new.encode()), ctypes.c_char_p(old.encode()))


def detach(target: str) -> None:
    """Unmount what is mounted at a place and beneath it."""
    _checked(_libc.umount2(target.encode(), ctypes.c_int(MNT_DETACH)), f"umount {target}")


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent ends. Changes of the user undo this."""
    _prctl(_PR_SET_PDEATHSIG, _SIGKILL)


def hide() -> None:
    """Keep processes of the same user from this one's memory, environment and descriptors."""
    _prctl(_PR_SET_DUMPABLE, 0)


def drop_bounding_set() -> None:
    """Give up all capabilities for good, those of programs that are started too."""
    for number in range(64):
        try:
            _prctl(_PR_CAPBSET_DROP, number)
        except OSError:
            break  # the kernel has no more of them


def drop_capabilities() -> None:
    """Give up all capabilities that this process has, and those that a program could bring."""
    _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    header = struct.pack("Ii", _CAPABILITY_VERSION, 0)
    _call("capset", header, struct.pack("6I", *[0] * 6))
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


# -- the filter of system calls ------------------------------------------------------------------

_LOAD, _AND, _RETURN = 0x20, 0x54, 0x06
_IF_EQUAL, _IF_AT_LEAST = 0x15, 0x35
_RET_ALLOW, _RET_KILL, _RET_ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_NR_AT, _ARCH_AT, _FIRST_ARGUMENT_AT, _HIGH_HALF = 0, 4, 16, 4


def _op(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("HBBI", code, if_true, if_false, value)


def _refuse(number: int, error: int) -> list[bytes]:
    """Refuse a call: skip the next instruction unless it is this one."""
    return [_op(_IF_EQUAL, number, 0, 1), _op(_RETURN, _RET_ERRNO | error)]


def _checked_calls(numbers: dict[str, int]) -> list[bytes]:
    """Look at the first argument of calls that are allowed with some values of it only."""
    namespaces = 0
    for flag in _ALL_NAMESPACES:
        namespaces |= flag
    new_namespaces = [
        _op(_LOAD, _FIRST_ARGUMENT_AT),
        _op(_AND, namespaces),
        _op(_IF_EQUAL, 0, 1, 0),
        _op(_RETURN, _RET_ERRNO | _EPERM),
        _op(_RETURN, _RET_ALLOW),
    ]
    families = [_op(_LOAD, _FIRST_ARGUMENT_AT)]
    for family in _FAMILIES:
        families += [_op(_IF_EQUAL, family, 0, 1), _op(_RETURN, _RET_ALLOW)]
    families.append(_op(_RETURN, _RET_ERRNO | _EAFNOSUPPORT))
    itself = [
        _op(_LOAD, _FIRST_ARGUMENT_AT),
        _op(_IF_EQUAL, 0, 1, 0),
        _op(_RETURN, _RET_ERRNO | _EPERM),
        _op(_RETURN, _RET_ALLOW),
    ]
    blocks = {
        "clone": new_namespaces,
        "socket": families,
        "socketpair": families,
        "prlimit64": itself,
    }
    made: list[bytes] = []
    for name, block in blocks.items():
        made += [_op(_IF_EQUAL, numbers[name], 0, len(block)), *block]
    return made


def filter_program(machine: str) -> bytes:
    """Return the BPF program of the filter for a machine of this kind."""
    numbers = {**_SAME, **_NUMBERS[machine]}
    program = [
        _op(_LOAD, _ARCH_AT),
        _op(_IF_EQUAL, _AUDIT_ARCH[machine], 1, 0),
        _op(_RETURN, _RET_KILL),  # 32-bit calls have other numbers
        _op(_LOAD, _NR_AT),
    ]
    if machine == "x86_64":
        program += [_op(_IF_AT_LEAST, _X32_BIT, 0, 1), _op(_RETURN, _RET_KILL)]
    for name, number in numbers.items():
        if name not in (*_ALLOWED_AFTER_CHECK, "capset"):
            program += _refuse(number, _ENOSYS if name in _NOT_THERE else _EPERM)
    program += _checked_calls(numbers)
    program.append(_op(_RETURN, _RET_ALLOW))
    return b"".join(program)


def install_filter() -> None:
    """Refuse dangerous system calls to this process and to all that it starts, for good."""
    program = filter_program(platform.machine())
    code = ctypes.create_string_buffer(program, len(program))
    # struct sock_fprog: the number of instructions, padding, and their address
    told = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(code))
    place = ctypes.create_string_buffer(told, len(told))
    _prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.addressof(place))
