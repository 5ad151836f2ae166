"""The file system of a sandbox: what is built, and how the process leaves the host's behind.

It runs in the sandbox's own processes, before any code that a model wrote.
"""

import errno
import fcntl
import fnmatch
import os
import shutil
import socket
import stat
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from caesura.tools.code import kernel

WORK = "/mnt/data"
"""The working folder in the sandbox: the one that models know of OpenAI's code interpreter."""
PROGRAMS = "/caesura"
"""Where the sandbox has the programs that Caesura runs in it."""
_BASE = "/tmp"
_SKELETON_BYTES = 4 * 2**20
_DEVICES = ("null", "zero", "full", "random", "urandom")
_SET_FLAGS, _GET_FLAGS, _UP = 0x8914, 0x8913, 0x1


class NotSafe(Exception):
    """The sandbox cannot be built; the message says why."""


def isolate(config: Mapping[str, Any]) -> None:
    """Leave the host's namespaces; the next child is the first process of the sandbox's."""
    flags = kernel.CLONE_NEWNS | kernel.CLONE_NEWPID | kernel.CLONE_NEWNET
    flags |= kernel.CLONE_NEWIPC | kernel.CLONE_NEWUTS | kernel.CLONE_NEWCGROUP
    uid, gid = os.geteuid(), os.getegid()
    try:
        # A user namespace of root's would leave processes with root's rights on files.
        kernel.unshare(flags if uid == 0 else flags | kernel.CLONE_NEWUSER)
        if uid != 0:
            _write("/proc/self/setgroups", "deny")
            _write("/proc/self/uid_map", f"{config['uid']} {uid} 1")
            _write("/proc/self/gid_map", f"{config['uid']} {gid} 1")
    except OSError as error:
        who = "root may not make namespaces" if uid == 0 else "users may not make namespaces"
        raise NotSafe(f"{who} ({error})") from None


def build(config: Mapping[str, Any]) -> int:
    """Build the sandbox's file system and enter it; return how many files were not copied."""
    kernel.mount("", "/", flags=kernel.MS_REC | kernel.MS_PRIVATE)
    kernel.mount("tmpfs", _BASE, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "mode=755")
    os.mkdir(f"{_BASE}/host")
    kernel.pivot_root(_BASE, f"{_BASE}/host")
    os.chdir("/")
    os.mkdir("/new")
    kernel.mount(
        "tmpfs",
        "/new",
        "tmpfs",
        kernel.MS_NOSUID | kernel.MS_NODEV,
        f"mode=755,size={_SKELETON_BYTES}",
    )
    _make_space(config)  # first: an interpreter may lie in /tmp
    _bind_readable(config["readable"])
    _make_devices()
    _mount_processes()
    _write_files(config)
    _raise_loopback()
    socket.sethostname("sandbox")
    missed = 0
    if config["folder"]:
        owner = config["uid"] if os.geteuid() == 0 else None
        missed = _copied(f"/host{config['folder']}", f"/new{WORK}", config["skip"], owner)
    kernel.restrict("/new", kernel.READ_ONLY, recursive=False)
    os.chdir("/new")
    kernel.pivot_root(".", ".")
    kernel.detach(".")
    os.chdir(WORK)
    return missed


def give_up_rights(uid: int) -> None:
    """Become an ordinary user without any right to get another one."""
    kernel.drop_bounding_set()
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    kernel.drop_capabilities()
    kernel.hide()
    kernel.die_with_parent()
    kernel.install_filter()


def _bind_readable(paths: Sequence[str]) -> None:
    """Show files and folders of the host, which cannot be written to."""
    for path in paths:
        source, target = f"/host{path}", f"/new{path}"
        if os.path.lexists(target) or not os.path.lexists(source):
            continue
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if os.path.islink(source):
            os.symlink(os.readlink(source), target)
            continue
        _bind(source, target)
        kernel.restrict(target, kernel.READ_ONLY | kernel.NO_SETUID | kernel.NO_DEVICES)


def _bind(source: str, target: str) -> None:
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    else:
        _write(target, "")
    kernel.mount(source, target, flags=kernel.MS_BIND | kernel.MS_REC)


def _make_devices() -> None:
    os.makedirs("/new/dev", exist_ok=True)
    for name in _DEVICES:
        _bind(f"/host/dev/{name}", f"/new/dev/{name}")
    for name, target in (("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")):
        os.symlink(f"/proc/self/fd{target}", f"/new/dev/{name}")


def _mount_processes() -> None:
    os.mkdir("/new/proc")
    flags = kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC
    # The processes of the sandbox alone, without the settings of the kernel.
    kernel.mount("proc", "/new/proc", "proc", flags, "subset=pid")


def _make_space(config: Mapping[str, Any]) -> None:
    """Mount the only place that can be written to, and show it as several folders."""
    os.mkdir("/space")
    size = f"mode=755,size={config['disk_bytes']},nr_inodes={config['inodes']}"
    kernel.mount("tmpfs", "/space", "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, size)
    for name, place in (("work", WORK), ("tmp", "/tmp"), ("shm", "/dev/shm")):
        os.mkdir(f"/space/{name}", 0o700)
        if os.geteuid() == 0:
            os.chown(f"/space/{name}", config["uid"], config["uid"])
        os.makedirs(f"/new{place}", exist_ok=True)
        kernel.mount(f"/space/{name}", f"/new{place}", flags=kernel.MS_BIND)


def _write_files(config: Mapping[str, Any]) -> None:
    os.makedirs("/new/etc", exist_ok=True)
    uid = config["uid"]
    _write("/new/etc/passwd", f"box:x:{uid}:{uid}:box:{WORK}:/bin/sh\n")
    _write("/new/etc/group", f"box:x:{uid}:\n")
    _write("/new/etc/hosts", "127.0.0.1 localhost\n::1 localhost\n")
    os.mkdir(f"/new{PROGRAMS}")
    for name, text in config["programs"].items():
        _write(f"/new{PROGRAMS}/{name}", text)


def _raise_loopback() -> None:
    """Let the sandbox's processes reach each other by 127.0.0.1, where nobody else listens."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sH14x", b"lo", 0)
        flags = struct.unpack("16sH14x", fcntl.ioctl(any_socket, _GET_FLAGS, request))[1]
        fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("16sH14x", b"lo", flags | _UP))


def _copied(source: str, target: str, skip: Sequence[str], owner: int | None) -> int:
    """Copy a folder, its links as links; return how many files could not be read."""
    missed = 0
    try:
        with os.scandir(source) as found:
            entries = list(found)
    except PermissionError:
        return 1
    for entry in entries:
        if any(fnmatch.fnmatchcase(entry.name, pattern) for pattern in skip):
            continue
        place = f"{target}/{entry.name}"
        try:
            if entry.is_dir(follow_symlinks=False):
                os.mkdir(place, 0o700)
                missed += _copied(entry.path, place, skip, owner)
            else:
                _copy_file(entry, place)
        except PermissionError:
            missed += 1
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise NotSafe("the folder does not fit into disk_mb") from None
            raise
        if owner is not None and os.path.lexists(place):
            os.chown(place, owner, owner, follow_symlinks=False)
    return missed


def _copy_file(entry: "os.DirEntry[str]", place: str) -> None:
    """Copy a file or a link; a device, a socket or a pipe is left out."""
    if entry.is_symlink():
        os.symlink(os.readlink(entry.path), place)
    elif entry.is_file():
        shutil.copyfile(entry.path, place)
        mode = stat.S_IMODE(entry.stat(follow_symlinks=False).st_mode)
        os.chmod(place, mode & 0o777 | 0o600)


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
