"""Clients against one server with one template: what the model writes, and how each fares."""

import asyncio
import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tests.agents.clients import Client
from tests.agents.install import FOLDER
from tests.agents.model import make
from tests.agents.recorder import Recorder, recording
from tests.agents.results import Outcome, outcome
from tests.agents.running import PORT, Place, has_namespaces, run_client, scratch
from tests.agents.servers import MODEL, serving
from tests.agents.task import undone
from tests.agents.templates import Script, Template, Turn
from tests.formats.rendering import Call

Told = Callable[[Client, Outcome], None]


@dataclass(frozen=True)
class Gate:
    """One server with one chat template; exchanges are recorded below a folder."""

    template: Template
    shell: str
    recordings: Path

    def run(self, versions: Mapping[Client, str], tell: Told) -> None:
        """Run clients one after the other, and tell how each fared."""
        model = make(self.template, FOLDER / "models")
        with scratch() as folder:
            homes = {client: folder / client.folder for client in versions}
            scripts = scripts_of(self.template, homes)
            with serving(self.shell, self.template, model, scripts, folder) as url:
                asyncio.run(self._run(url, versions, homes, tell))

    async def _run(
        self,
        url: str,
        versions: Mapping[Client, str],
        homes: Mapping[Client, Path],
        tell: Told,
    ) -> None:
        socket = next(iter(homes.values())).parent / "server.sock"
        async with recording(url, socket) as (recorder, port):
            seen = f"http://127.0.0.1:{PORT if has_namespaces() else port}"
            for client, version in versions.items():
                recorder.folder = self.recordings / client.folder
                shutil.rmtree(recorder.folder, ignore_errors=True)
                place = Place(homes[client], seen, MODEL)
                tell(client, await _fared(client, version, recorder, place, socket))


def scripts_of(template: Template, homes: Mapping[Client, Path]) -> dict[str, Script]:
    """Return what the model is to write for each client, by the mark of the prompt."""
    scripts = {}
    for client, home in homes.items():
        place = Place(home, "", MODEL)
        for mark, turns in client.marked.items():
            scripts[mark] = template.script(client.tool, [filled(each, place) for each in turns])
    return scripts


def filled(turn: Turn, place: Place) -> Turn:
    """Return a turn with the paths of a home in its calls."""
    calls = tuple(
        Call(each.name, json.loads(place.filled(json.dumps(each.arguments)))) for each in turn.calls
    )
    return replace(turn, calls=calls)


async def _fared(
    client: Client, version: str, recorder: Recorder, place: Place, socket: Path
) -> Outcome:
    ends = await run_client(client, recorder, place, socket)
    lacks = undone(place.repository)
    for code, said in ends:
        if code is None:
            lacks.append("it took too long")
        elif code:
            lacks.append(f"exit code {code}: {' '.join(said.split())[-200:]}")
    thought = client.turns[0].thought[:40]
    return outcome(recorder.folder, version, lacks, thought)
