"""Whether this machine has a safe sandbox: a program in one tries to get out of it.

What the program tries and must not do: read a file of the host's, reach listeners of the host's,
signal its processes, mount, make namespaces, write to the system's files.
"""

import json
import os
import platform
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from caesura.tools.code.box import Bounds, BoxFailed, command, environment, interpreter, opening

PROBE_SECONDS = 60.0
_TRIES = """
import ctypes, json, os, socket, sys
asked = json.loads(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
escapes = []
def tries(what, attempt):
    try:
        attempt()
    except (OSError, ValueError):
        return
    escapes.append(what)
def connects(family, address):
    with socket.socket(family) as made:
        made.settimeout(2)
        made.connect(address)
def calls(result):
    if result != 0:
        raise OSError(ctypes.get_errno(), "refused")
tries("read a file of the host", lambda: open(asked["file"]).read())
tries("connect to 127.0.0.1", lambda: connects(socket.AF_INET, ("127.0.0.1", asked["port"])))
tries("connect to an abstract socket", lambda: connects(socket.AF_UNIX, "\\0" + asked["name"]))
tries("signal a process of the host", lambda: os.kill(asked["pid"], 0))
tries("read the first process's environment", lambda: open("/proc/1/environ").read())
tries("read the kernel's settings", lambda: open("/proc/sys/kernel/ostype").read())
tries("write to /usr", lambda: open("/usr/escaped", "w").close())
tries("mount", lambda: calls(libc.mount(b"tmpfs", b"/tmp", b"tmpfs", 0, None)))
tries("make a user namespace", lambda: calls(libc.unshare(0x10000000)))
tries("open a socket of another kind", lambda: socket.socket(16, socket.SOCK_RAW, 0).close())
if os.geteuid() == 0 or "NoNewPrivs:\\t1" not in open("/proc/self/status").read():
    escapes.append("keep rights")
print(json.dumps(escapes))
"""


@cache
def check(python: str) -> str:
    """Return what holds programs of this Python, after a try; raise BoxFailed with the reason.

    Blocking.
    """
    if platform.system() != "Linux":
        raise BoxFailed(f"sandboxes need Linux, and this is {platform.system()}")
    escapes = escapes_from(Bounds(*interpreter(python)), command())
    if escapes:
        raise BoxFailed(f"the sandbox does not hold: a program in it could {', '.join(escapes)}")
    return "namespaces and a filter of system calls"


def escapes_from(bounds: Bounds, first: Sequence[str]) -> list[str]:
    """Run the program that tries to get out of a sandbox; return what it could do.

    first: the command of the sandbox's first process. Blocking; raises BoxFailed.
    """
    name = f"caesura-{os.getpid()}-{os.urandom(6).hex()}"
    with (
        tempfile.NamedTemporaryFile() as file,
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(socket.AF_UNIX) as abstract,
    ):
        os.fchmod(file.fileno(), 0o644)
        abstract.bind(f"\0{name}")
        abstract.listen()
        asked = {"file": file.name, "port": server.getsockname()[1], "name": name}
        argv = [bounds.python, "-I", "-c", _TRIES, json.dumps(asked | {"pid": os.getpid()})]
        request = {"op": "run", "argv": argv, "seconds": 30, "output": 4096}
        told = _asked(bounds, request, first)
    try:
        escapes = json.loads(told["stdout"])
    except ValueError:
        reason = told["stderr"].strip().splitlines() or [f"it ended with {told['code']}"]
        raise BoxFailed(f"a program cannot run in the sandbox: {reason[-1]}") from None
    return [str(each) for each in escapes]


def _asked(bounds: Bounds, request: dict[str, Any], first: Sequence[str]) -> dict[str, Any]:
    """Start a sandbox for one request, and return the reply."""
    try:
        process = subprocess.Popen(
            list(first),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env=environment(),
            start_new_session=True,
        )
    except OSError as error:
        raise BoxFailed(f"the sandbox's first process does not run: {error}") from None
    late = threading.Timer(PROBE_SECONDS, process.kill)
    late.start()
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(BrokenPipeError):
            # The input stays open until the reply has come: the sandbox ends with its input.
            process.stdin.write(opening(bounds) + json.dumps(request).encode() + b"\n")
            process.stdin.flush()
        replies = [json.loads(line) for line in (process.stdout.readline() for _ in "12") if line]
        late.cancel()
        process.kill()
    for reply in replies:
        if "failed" in reply:
            raise BoxFailed(f"{reply['failed']}; {advice()}")
    if len(replies) < 2:
        raise BoxFailed(f"the sandbox's first process ended at the start; {advice()}")
    last: dict[str, Any] = replies[-1]
    return last


def advice() -> str:
    """Return what a user can do on a machine where namespaces cannot be made."""
    kept = Path("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")
    if os.geteuid() == 0:
        return "in a container, give it the capability SYS_ADMIN, or run the tools on the host"
    if kept.exists() and kept.read_text().strip() == "1":
        return (
            "AppArmor restricts user namespaces: allow them for this Python by a profile, or set"
            " kernel.apparmor_restrict_unprivileged_userns=0"
        )
    if shutil.which("sysctl"):
        return "allow user namespaces: sysctl user.max_user_namespaces=15000"
    return "allow unprivileged user namespaces"
