"""The sandbox that `python`, `shell` and `files` share, one for each session, and its settings."""

import asyncio
import base64
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from caesura.tools.artifacts import Artifact, ArtifactError
from caesura.tools.code.box import Bounds, Box, BoxFailed, BoxLost, default_python, interpreter
from caesura.tools.code.probe import check
from caesura.tools.code.root import PROGRAMS
from caesura.tools.code.writing_back import MAX_BATCH_BYTES, Folder
from caesura.tools.context import current
from caesura.tools.errors import Permanent, Unavailable
from caesura.tools.services import Services, SetupError, ToolSettings

SKIPPED = (".venv", "venv", "node_modules", "__pycache__", ".env", ".env.*")
"""What is not copied from a folder: what is large and can be made again, and where keys stand."""
MAX_PICTURES = 4
MAX_PICTURE_BYTES = 8 * 2**20
_PICTURES = {
    "png": (b"\x89PNG\r\n\x1a\n",),
    "jpg": (b"\xff\xd8\xff",),
    "webp": (b"RIFF",),
}
_KEY = "sandbox"


class SandboxSettings(ToolSettings):
    """What `[tools.python]`, `[tools.shell]` and `[tools.files]` have in common.

    The three share one sandbox, so a value that one of them names is that of all three.
    """

    seconds: float = Field(60.0, gt=0, le=3600, description="limit for one call; per tool")
    folder: Path | None = Field(None, description="a folder that is copied into the sandbox")
    write_back: bool = Field(False, description="whether changes are written to the folder")
    skip: tuple[str, ...] = Field(SKIPPED, description="patterns of names that are not copied")
    memory_mb: int = Field(1024, ge=64, description="memory of all processes together")
    disk_mb: int = Field(512, ge=1, description="of all files together; they are held in memory")
    processes: int = Field(64, ge=8, description="processes and threads at the same time")
    interpreter: Path | None = Field(None, description="the Python to use; default: Caesura's")
    sandboxes: int = Field(16, ge=1, description="sessions that have a sandbox at the same time")


_SHARED = tuple(name for name in SandboxSettings.__annotations__ if name != "seconds")


class Sandboxes:
    """Makes a sandbox for each session that needs one."""

    def __init__(self) -> None:
        self._named: dict[str, tuple[str, Any]] = {}
        self._held = 0
        self._folders: dict[Box, Folder] = {}
        """The folders to which changes are written, by sandbox."""

    @classmethod
    def of(cls, services: Services, settings: SandboxSettings, tool: str) -> "Sandboxes":
        """Return those of a process, after they have taken the settings of one more tool.

        Raises SetupError where no sandbox is safe here, and for settings that contradict those of
        another tool.
        """
        shared = services.shared.setdefault(_KEY, cls())
        assert isinstance(shared, cls)
        shared._take(settings, tool)
        return shared

    def _take(self, settings: SandboxSettings, tool: str) -> None:
        for name in settings.model_fields_set & set(_SHARED):
            value = getattr(settings, name)
            other, known = self._named.setdefault(name, (tool, value))
            if known != value:
                raise SetupError(
                    f"[tools.{tool}]: {name} is {_shown(value)}, and [tools.{other}] has "
                    f"{_shown(known)}: they share one sandbox, so name it once"
                )
        folder = settings.folder
        if folder is not None and not folder.is_dir():
            raise SetupError(f"[tools.{tool}]: folder: there is no folder {str(folder)!r}")
        if folder is not None and folder.resolve() in (Path("/"), Path.home()):
            raise SetupError(
                f"[tools.{tool}]: folder: {str(folder)!r} holds much else: name a folder in it"
            )
        named = self._setting("interpreter")
        try:
            check(default_python() if named is None else str(named))
        except BoxFailed as error:
            raise SetupError(f"the tool {tool!r} has no safe sandbox here: {error}") from None

    def _setting(self, name: str) -> Any:
        field = SandboxSettings.model_fields[name]
        return self._named[name][1] if name in self._named else field.default

    def bounds(self) -> Bounds:
        """Return what each sandbox holds and may use. Blocking."""
        folder, named = self._setting("folder"), self._setting("interpreter")
        python, readable = interpreter(default_python() if named is None else str(named))
        return Bounds(
            python,
            readable,
            "" if folder is None else str(folder.resolve()),
            tuple(self._setting("skip")),
            self._setting("memory_mb") * 2**20,
            self._setting("disk_mb") * 2**20,
            self._setting("processes"),
        )

    async def box(self) -> Box:
        """Return the sandbox of the session whose call runs; it is made where there is none."""
        scope = current().scope
        box = await scope.keep(_KEY, self._make, self._close)
        if not box.is_alive:
            await scope.drop(_KEY)
            box = await scope.keep(_KEY, self._make, self._close)
        return box

    async def _make(self) -> Box:
        if self._held >= self._setting("sandboxes"):
            raise Unavailable("all sandboxes are in use: try again later")
        self._held += 1
        try:
            bounds, copied_ns = self.bounds(), time.time_ns()
            box = await Box.start(bounds)
            if self._setting("write_back") and bounds.folder:
                self._folders[box] = Folder(bounds.folder, bounds.skip, copied_ns)
            return box
        except BaseException as error:
            self._held -= 1
            if isinstance(error, BoxFailed):
                raise Permanent(f"the sandbox cannot be made: {error}") from None
            raise

    async def _close(self, box: Box) -> None:
        self._held -= 1
        self._folders.pop(box, None)
        await box.aclose()

    async def settled(self, box: Box) -> str:
        """Write what calls have changed to the user's folder, where the settings say so.

        Returns a line for the model about files for which that cannot be done, or an empty text.
        """
        folder = self._folders.get(box)
        if folder is None or not (box.changed or box.gone):
            return ""
        changed, gone = sorted(box.changed.items()), sorted(box.gone)
        box.changed.clear()
        box.gone.clear()
        refused: dict[str, str] = {}
        for paths in folder.batches(changed, refused):
            request = {"action": "pack", "paths": paths, "most": MAX_BATCH_BYTES}
            text, _ = await edited(box, request, 60.0, output=2 * MAX_BATCH_BYTES)
            refused |= await asyncio.to_thread(folder.write, text)
        refused |= await asyncio.to_thread(folder.remove, gone)
        named = [f"{path} ({why})" for path, why in sorted(refused.items())[:8]]
        more = [f"{len(refused) - len(named)} more"] if len(refused) > len(named) else []
        return f"[not written to the user's folder: {', '.join(named + more)}]" if named else ""


async def edited(
    box: Box, request: Mapping[str, Any], seconds: float, *, output: int
) -> tuple[str, dict[str, Any]]:
    """Run a request to the files in the sandbox; return the answer, and what became of the program.

    Raises Permanent with the reason where it fails.
    """
    argv = [box.bounds.python, "-I", f"{PROGRAMS}/editing.py"]
    told = await box.run(argv, seconds, given=json.dumps(request), output=output)
    kind, _, text = str(told["stdout"]).partition("\n")
    if kind == "text":
        return text, told
    if kind == "refused":
        raise Permanent(text)
    if told["reason"] == "timeout":
        raise Permanent(f"it took longer than {seconds:g} s: ask for less")
    raise Permanent(f"it ended without an answer: {str(told['stderr']).strip()[-300:]}")


async def pictures(
    box: Box, services: Services, changed: Sequence[Sequence[Any]]
) -> list[Artifact]:
    """Return the pictures among the files that a call wrote, stored as artifacts."""
    made: list[Artifact] = []
    for path, size in changed:
        suffix = str(path).rpartition(".")[2].lower().replace("jpeg", "jpg")
        if suffix not in _PICTURES or not 0 < size <= MAX_PICTURE_BYTES:
            continue
        request = {"action": "fetch", "path": path, "most": MAX_PICTURE_BYTES}
        try:
            text, _ = await edited(box, request, 20.0, output=2 * MAX_PICTURE_BYTES)
            data = base64.b64decode(text)
            if data.startswith(_PICTURES[suffix]):
                made.append(await asyncio.to_thread(services.artifacts.put, data, suffix))
        except (Permanent, BoxLost, ArtifactError, ValueError):
            continue
        if len(made) == MAX_PICTURES:
            break
    return made


def files_line(told: Mapping[str, Any], made: Sequence[Artifact]) -> str:
    """Return a line about the files that a call wrote; empty if there are none."""
    named = [f"{path} ({size} bytes)" for path, size in told["changed"][:12]]
    more = len(told["changed"]) - len(named)
    if more:
        named.append(f"{more} more")
    line = f"[files written: {', '.join(named)}]" if named else ""
    shown = "".join(f"\n[picture: {each.url}]" for each in made)
    return f"{line}{shown}".strip()


def _shown(value: Any) -> str:
    return repr(str(value) if isinstance(value, Path) else value)
