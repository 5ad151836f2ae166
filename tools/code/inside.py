"""The first process of a sandbox: it builds the sandbox, and runs in it what the host asks for.

The host writes lines of JSON to its input, and reads one line for each call from its output. The
process has no more rights than what it starts. All end with it, since it is the first process of
a pid namespace; it ends when its input does, and when its parent dies.
"""

import fcntl
import json
import os
import resource
import selectors
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NoReturn

from caesura.tools.code import kernel
from caesura.tools.code.root import (
    PROGRAMS,
    WORK,
    NotSafe,
    build,
    give_up_rights,
    isolate,
)

POLL_SECONDS = 0.05
GRACE_SECONDS = 2.0
"""How long the interpreter may take to end code that was interrupted."""
_PIPE_BYTES = 60_000
"""What fits into a pipe that nobody reads yet."""
_CHUNK = 65_536
_MAX_LINE = 2**20
_MAX_WALKED = 50_000
_SWEEPS = 200
_COARSE = 5
"""CLOCK_REALTIME_COARSE, by which Linux dates files."""


class Output:
    """What a stream wrote: its first and its last bytes, at most `limit` of them."""

    def __init__(self, limit: int) -> None:
        self._head_limit = limit // 2
        self._tail_limit = limit - limit // 2
        self._head = bytearray()
        self._tail = bytearray()
        self._total = 0

    def push(self, data: bytes) -> None:
        """Take what was written."""
        self._total += len(data)
        room = self._head_limit - len(self._head)
        self._head += data[:room]
        self._tail += data[max(room, 0) :]
        if len(self._tail) > 2 * self._tail_limit:
            del self._tail[: -self._tail_limit]

    def text(self) -> str:
        """Return the text, with a note in place of what was left out."""
        tail = bytes(self._tail[-self._tail_limit :]) if self._tail else b""
        left_out = self._total - len(self._head) - len(tail)
        if not left_out:
            return (bytes(self._head) + tail).decode("utf-8", "replace")
        note = f"\n[... {left_out} bytes left out ...]\n"
        return self._head.decode("utf-8", "replace") + note + tail.decode("utf-8", "replace")


class Interpreter:
    """The session's Python, with its descriptors on this side."""

    def __init__(self, pid: int, channel: socket.socket, out: int, err: int) -> None:
        self.pid = pid
        self.channel = channel
        self.out = out
        self.err = err
        self.answers = b""
        self.begun = 0
        """The number of the last request that it has begun to run."""

    def ask(self, number: int, code: str) -> None:
        """Let it go on, and give it code."""
        os.kill(self.pid, signal.SIGCONT)
        self.channel.setblocking(True)
        self.channel.sendall(json.dumps({"number": number, "code": code}).encode() + b"\n")
        self.channel.setblocking(False)

    def answer(self, number: int) -> dict[str, Any] | None:
        """Return its answer to a request if it has come. Raises ValueError for nonsense."""
        with suppress(BlockingIOError):
            while data := self.channel.recv(_CHUNK):
                self.answers += data
                if len(self.answers) > _MAX_LINE:
                    raise ValueError("too long")
        while b"\n" in self.answers:
            line, _, self.answers = self.answers.partition(b"\n")
            said = json.loads(line)
            if not (isinstance(said, dict) and said.get("number") == number):
                continue
            if "begun" not in said:
                return said
            self.begun = number
        return None

    def close(self) -> None:
        """Close the descriptors on this side."""
        self.channel.close()
        os.close(self.out)
        os.close(self.err)


class Call:
    """One call that runs, and what is known of it."""

    def __init__(self, request: Mapping[str, Any]) -> None:
        self.began = time.monotonic()
        self.deadline = self.began + float(request["seconds"])
        self.out = Output(request["output"])
        self.err = Output(request["output"])
        self.reason = ""
        self.must_end = False
        self.is_over = False
        self.interrupted = 0.0
        self.status: int | None = None
        self.answer: dict[str, Any] = {}

    def end(self, reason: str) -> None:
        """Have it end, for a reason that the host is told."""
        self.reason = self.reason or reason
        self.must_end = True


class Server:
    """Runs the host's requests, one after the other."""

    def __init__(self, config: Mapping[str, Any], control: int, replies: int) -> None:
        self._config = config
        self._control = control
        self._replies = replies
        self._asked = b""
        self._eof = False
        self._python: Interpreter | None = None
        self._number = 0
        self._statuses: dict[int, int] = {}
        self._known: dict[str, int] = {}
        self._names: set[str] = set()
        """The files of the working folder after the last call."""

    def look(self) -> None:
        """Note which files there are before the first call."""
        self._names = _changed(_now(), {}, set())[1]

    def serve(self) -> None:
        """Answer requests until the input ends."""
        while (request := self._next()) is not None:
            if request["op"] == "stop":
                continue  # its call has ended by itself
            try:
                if request["op"] == "python":
                    self.say(self._python_call(request) or self._python_call(request, True) or {})
                else:
                    self.say(self._run(request))
            except OSError as error:
                self._sweep()
                why = f"the sandbox could not start it: {error.strerror or error}"
                self.say({"failed": why})

    def say(self, told: Mapping[str, Any]) -> None:
        """Tell the host something."""
        data = json.dumps(told).encode() + b"\n"
        while data:
            data = data[os.write(self._replies, data) :]

    def _next(self) -> dict[str, Any] | None:
        """Return the next request, or None at the end of the input."""
        while b"\n" not in self._asked:
            data = os.read(self._control, _CHUNK)
            if not data:
                return None
            self._asked += data
        line, _, self._asked = self._asked.partition(b"\n")
        request: dict[str, Any] = json.loads(line)
        return request

    def _is_stopped(self) -> bool:
        """Return whether the host wants the call to end."""
        data = os.read(self._control, _CHUNK)
        if not data:
            os._exit(0)
        self._asked += data
        return b'"stop"' in self._asked

    # -- calls -----------------------------------------------------------------------------------

    def _run(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Run a program to its end."""
        self._statuses = {pid: each for pid, each in self._statuses.items() if self._is_python(pid)}
        mark, call = _now(), Call(request)
        out, out_there = os.pipe()
        err, err_there = os.pipe()
        given = _input(request.get("input"))
        # A backstop: threads that all compute may use the call's time on each processor.
        limits = self._limits(int((float(request["seconds"]) + 1) * (os.cpu_count() or 1)) + 1)
        argv, environment = request["argv"], self._config["environment"]
        pid = _spawn(argv, (given, out_there, err_there), limits, environment)
        for descriptor in (given, out_there, err_there):
            os.close(descriptor)
        watched = os.pidfd_open(pid)
        try:
            self._attend(call, pid, watched, (out, err))
        finally:
            background = len(self._sweep() - {pid})
            _drain(out, call.out)
            _drain(err, call.err)
            for descriptor in (watched, out, err):
                os.close(descriptor)
        return self._told(call, mark, background)

    def _python_call(
        self, request: Mapping[str, Any], was_lost: bool = False
    ) -> dict[str, Any] | None:
        """Run code in the session's interpreter, which is started where there is none.

        Returns None if it was ending before it ran the code.
        """
        mark, call = _now(), Call(request)
        self._reap()
        was_lost |= self._python is not None and self._python.pid in self._statuses
        if was_lost:
            self._forget_python()
        python = self._python or self._started()
        self._number += 1
        watched = os.pidfd_open(python.pid)
        is_lost = False
        try:
            python.ask(self._number, request["code"])
            self._attend(call, python.pid, watched, (python.out, python.err), python)
        except (OSError, ValueError):
            is_lost = True
        finally:
            os.close(watched)
        is_lost = is_lost or python.pid in self._statuses or (call.must_end and not call.answer)
        if is_lost:
            _kill(python.pid)
            self._python = None
        else:
            os.kill(python.pid, signal.SIGSTOP)
        background = len(self._sweep() - {python.pid})
        _drain(python.out, call.out)
        _drain(python.err, call.err)
        if is_lost:
            call.status = self._statuses.pop(python.pid, None)
            python.close()
            if not (was_lost or call.must_end or self._number in (1, python.begun)):
                return None
        answer = {name: call.answer.get(name) for name in ("value", "error")}
        lost = {"lost": is_lost, "was_lost": was_lost}
        return self._told(call, mark, background) | answer | lost

    def _forget_python(self) -> None:
        """Forget an interpreter that has ended."""
        if self._python is not None:
            self._statuses.pop(self._python.pid, None)
            self._python.close()
            self._python = None

    def _attend(
        self,
        call: Call,
        pid: int,
        watched: int,
        streams: tuple[int, int],
        python: Interpreter | None = None,
    ) -> None:
        """Read the output of a call until it has ended or has to."""
        with selectors.DefaultSelector() as selector:
            for descriptor in (watched, *streams, self._control):
                selector.register(descriptor, selectors.EVENT_READ)
            if python is not None:
                selector.register(python.channel, selectors.EVENT_READ)
            looked = call.began
            while not call.is_over:
                ready = {key.fd for key, _ in selector.select(POLL_SECONDS)}
                for descriptor, output in zip(streams, (call.out, call.err), strict=True):
                    if descriptor in ready and not _read(descriptor, output):
                        selector.unregister(descriptor)
                if self._is_done(call, pid, python):
                    return
                if self._control in ready and self._is_stopped():
                    call.end("stopped")
                now = time.monotonic()
                if now - looked >= POLL_SECONDS:
                    looked = now
                    self._check_memory(call, 0 if python is None else pid)
                self._check_time(call, pid, python is not None, now)

    def _is_done(self, call: Call, pid: int, python: Interpreter | None) -> bool:
        """Return whether the program has ended, or the interpreter has answered."""
        self._reap()
        if python is not None and (answer := python.answer(self._number)) is not None:
            call.answer = answer
            return True
        call.status = self._statuses.get(pid)
        return call.status is not None

    def _check_memory(self, call: Call, python: int) -> None:
        """Kill what takes too much memory; a program of its own is then over."""
        sizes = {pid: _anonymous(pid) for pid in _processes()}
        if sum(sizes.values()) <= self._config["memory_bytes"]:
            return
        call.reason = call.reason or "memory"
        kept = 0 if self._python is None else self._python.pid
        if sizes.get(kept, 0) * 2 > sum(sizes.values()):
            kept = 0
        for pid in sizes:
            if pid != kept:
                _kill(pid)
        call.must_end = call.must_end or not python

    def _check_time(self, call: Call, pid: int, is_python: bool, now: float) -> None:
        """End a call that has to end; Python may first answer that it was interrupted."""
        if now >= call.deadline:
            call.end("timeout")
        if not call.must_end:
            return
        if is_python and not call.interrupted:
            call.interrupted = now
            os.kill(pid, signal.SIGINT)
        elif not is_python or now >= call.interrupted + GRACE_SECONDS:
            _kill(pid)
            call.is_over = True

    def _told(self, call: Call, mark: int, background: int) -> dict[str, Any]:
        status = call.status
        code = None if status is None else os.waitstatus_to_exitcode(status)
        changed, names = _changed(mark, self._known, self._names)
        gone, self._names = sorted(self._names - names), names
        return {
            "code": code,
            "reason": call.reason,
            "stdout": call.out.text(),
            "stderr": call.err.text(),
            "seconds": time.monotonic() - call.began,
            "background": background,
            "changed": changed,
            "gone": gone,
        }

    # -- processes -------------------------------------------------------------------------------

    def _started(self) -> Interpreter:
        """Start the session's interpreter."""
        here, there = socket.socketpair()
        out, out_there = os.pipe()
        err, err_there = os.pipe()
        nothing = os.open("/dev/null", os.O_RDONLY)
        argv = [self._config["python"], "-I", "-u", f"{PROGRAMS}/interpreter.py"]
        descriptors = (nothing, out_there, err_there, there.fileno())
        pid = _spawn(argv, descriptors, self._limits(), self._config["environment"])
        there.close()
        for descriptor in (nothing, out_there, err_there):
            os.close(descriptor)
        self._python = Interpreter(pid, here, out, err)
        return self._python

    def _limits(self, cpu_seconds: int = 0) -> dict[int, int]:
        """Return the limits of each process."""
        config = self._config
        limits = {
            resource.RLIMIT_CORE: 0,
            resource.RLIMIT_NOFILE: 512,
            resource.RLIMIT_NPROC: config["processes"],
            resource.RLIMIT_DATA: config["memory_bytes"],
            resource.RLIMIT_MEMLOCK: 65_536,
            resource.RLIMIT_MSGQUEUE: 0,
        }
        return limits | ({resource.RLIMIT_CPU: cpu_seconds} if cpu_seconds else {})

    def _is_python(self, pid: int) -> bool:
        return self._python is not None and self._python.pid == pid

    def _reap(self) -> None:
        """Take the statuses of the processes that have ended."""
        with suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if not pid:
                    return
                self._statuses[pid] = status

    def _sweep(self) -> set[int]:
        """Kill every process but this one and the interpreter; return those that were killed."""
        keep = None if self._python is None else self._python.pid
        killed: set[int] = set()
        for _ in range(_SWEEPS):
            self._reap()
            found = [pid for pid in _processes() if pid != keep and _state(pid) not in "ZX"]
            if not found:
                break
            for pid in found:
                killed.add(pid)
                _kill(pid)
            time.sleep(0.001)
        else:  # something starts processes faster than they can be found
            _kill(-1)
            time.sleep(0.01)
        self._reap()
        return killed


def _spawn(
    argv: Sequence[str],
    descriptors: Sequence[int],
    limits: Mapping[int, int],
    environment: Mapping[str, str],
) -> int:
    """Start a program with these descriptors as 0, 1, 2 and so on, and no others."""
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()
        for each in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
            signal.signal(each, signal.SIG_DFL)
        high = [fcntl.fcntl(each, fcntl.F_DUPFD, 64) for each in descriptors]
        for number, descriptor in enumerate(high):
            os.dup2(descriptor, number)
        os.closerange(len(high), 1024)
        os.chdir(WORK)
        for kind, limit in limits.items():
            resource.setrlimit(kind, (limit, limit))
        os.nice(5)
        os.execve(argv[0], list(argv), dict(environment))
    except BaseException as error:
        with suppress(OSError):
            os.write(2, f"{argv[0]} cannot be started: {error}\n".encode())
    os._exit(127)


def _input(text: str | None) -> int:
    """Return a descriptor from which a program reads a text."""
    if text is None:
        return os.open("/dev/null", os.O_RDONLY)
    data = text.encode("utf-8", "surrogateescape")
    if len(data) <= _PIPE_BYTES:
        here, there = os.pipe()
        os.write(there, data)
        os.close(there)
        return here
    file = os.open("/tmp", os.O_TMPFILE | os.O_RDWR, 0o600)
    while data:
        data = data[os.write(file, data) :]
    os.lseek(file, 0, os.SEEK_SET)
    return file


def _read(descriptor: int, output: Output) -> bool:
    """Read once; return whether there may be more."""
    data = os.read(descriptor, _CHUNK)
    output.push(data)
    return bool(data)


def _drain(descriptor: int, output: Output) -> None:
    """Read what a stream still holds."""
    os.set_blocking(descriptor, False)
    with suppress(BlockingIOError):
        for _ in range(16):
            if not _read(descriptor, output):
                break
    os.set_blocking(descriptor, True)


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and name != "1"]


def _status_of(pid: int) -> dict[str, str]:
    try:
        with open(f"/proc/{pid}/status", errors="replace") as file:
            return dict(line.split(":", 1) for line in file.read().splitlines() if ":" in line)
    except OSError:
        return {}


def _state(pid: int) -> str:
    return _status_of(pid).get("State", "X").strip()[:1]


def _anonymous(pid: int) -> int:
    """Return the bytes of memory of a process that belong to no file."""
    told = _status_of(pid)
    return sum(int(told.get(name, "0 kB").split()[0]) * 1024 for name in ("RssAnon", "RssShmem"))


def _now() -> int:
    """Return the time that a file which is changed now would get."""
    return time.clock_gettime_ns(_COARSE)


def _changed(
    mark: int, known: dict[str, int], before: set[str]
) -> tuple[list[tuple[str, int]], set[str]]:
    """Return files of the working folder that are newer, by name and size, and all files.

    known: the files that were told before, with their times, as two calls may be in one tick.
    before: the files that there were: those of a folder that was renamed keep their times. They
    all count as being there if not all folders can be read. What lies in a repository's own folder
    is left out.
    """
    found: list[tuple[str, int]] = []
    told: dict[str, int] = {}
    names: set[str] = set()
    errors: list[OSError] = []
    for folder, folders, files in os.walk(WORK, onerror=errors.append, followlinks=False):
        folders[:] = [each for each in folders if each not in (".git", "__pycache__")]
        for name in files:
            place = f"{folder}/{name}"
            with suppress(OSError):
                file = os.stat(place, follow_symlinks=False)
                path = os.path.relpath(place, WORK).encode("utf-8", "replace").decode()
                names.add(path)
                is_newer = file.st_ctime_ns >= mark and known.get(place) != file.st_ctime_ns
                if is_newer or path not in before:
                    told[place] = file.st_ctime_ns
                    found.append((path, file.st_size))
        if len(names) > _MAX_WALKED:
            errors.append(OSError("too many files"))
            break
    known.clear()
    known |= told
    return sorted(found), names | before if errors else names


def _exactly(descriptor: int, size: int) -> bytes:
    data = b""
    while len(data) < size:
        data += (part := os.read(descriptor, size - len(data)))
        if not part:
            os._exit(0)
    return data


def _first(config: Mapping[str, Any], control: int, replies: int) -> NoReturn:
    """Be the first process of the sandbox."""
    server = Server(config, control, replies)
    try:
        missed = build(config)
        os.umask(0o022)
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")
        give_up_rights(config["uid"])
    except (NotSafe, OSError) as error:
        server.say({"failed": str(error)})
        os._exit(1)
    time.sleep(0.01)  # what was copied is older than what the first call changes
    server.look()
    server.say({"ready": True, "missed": missed})
    server.serve()
    os._exit(0)


def main() -> NoReturn:
    """Read the configuration, and start the sandbox's first process; wait for its end."""
    config = json.loads(_exactly(0, int(_exactly(0, 8), 16)))
    control, replies = (os.dup(descriptor) for descriptor in (0, 1))
    for descriptor in (control, replies):
        os.set_inheritable(descriptor, False)
    nothing = os.open("/dev/null", os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    if not kernel.supported():
        Server(config, control, replies).say({"failed": "it needs Linux on x86_64 or aarch64"})
        sys.exit(1)
    try:
        isolate(config)
    except (NotSafe, OSError) as error:
        Server(config, control, replies).say({"failed": str(error)})
        os._exit(1)
    pid = os.fork()
    if not pid:
        _first(config, control, replies)
    kernel.die_with_parent()
    os.close(control)
    os.close(replies)
    os.waitpid(pid, 0)
    os._exit(0)
