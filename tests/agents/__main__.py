"""Run coding agents against servers: `python -m tests.agents [--client NAME] [--template NAME]`.

Each client does one editing task, on `caesura serve` and on stock `vllm serve`, with the chat
templates of several models. What the model writes is forced. The outcomes are kept in
`.cache/agents`, with a recording of every exchange, and docs/reference/agents.md is written from
them.
"""

import argparse
import json
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from tests.agents.clients import CLIENTS, Client
from tests.agents.gate import Gate
from tests.agents.install import FOLDER, Missing, install
from tests.agents.page import GUIDE, PAGE, Results, guide, page
from tests.agents.results import Outcome
from tests.agents.running import has_namespaces
from tests.agents.servers import SHELLS
from tests.agents.templates import TEMPLATES, Template
from tests.clients.servers import ROOT

RESULTS = FOLDER / "results"
RECORDINGS = FOLDER / "recordings"


def main() -> int:
    """Install clients, run them, and say how each fared."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = [each.folder for each in CLIENTS]
    parser.add_argument("--client", choices=names, action="append", help="repeatable; default: all")
    parser.add_argument("--template", choices=[each.name for each in TEMPLATES], action="append")
    parser.add_argument("--shell", choices=SHELLS, action="append", help="a server, repeatable")
    parser.add_argument(
        "--write", action="store_true", help=f"write {PAGE} from all outcomes, and {GUIDE}"
    )
    parser.add_argument("--newest", action="store_true", help="install the newest releases")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # servers and clients end with us
    if not has_namespaces():
        say(
            "this machine allows no network namespaces: clients are kept off the network by "
            "proxies that lead nowhere, which a client may ignore"
        )
    chosen = [each for each in CLIENTS if not args.client or each.folder in args.client]
    try:
        versions = installed(chosen, args.newest)
        for template in TEMPLATES:
            if args.template and template.name not in args.template:
                continue
            for shell in args.shell or SHELLS:
                run(template, shell, versions)
    except KeyboardInterrupt:
        say("stopped")
        return 130
    if args.write:
        (ROOT / PAGE).write_text(page(read_results()))
        (ROOT / GUIDE).write_text(guide((ROOT / GUIDE).read_text()))
    return 0


def say(text: str) -> None:
    """Print a line of progress at once."""
    print(text, flush=True)


def installed(clients: Sequence[Client], newest: bool) -> dict[Client, str]:
    """Install clients; return the version of each one that can be had, and say why not."""
    versions = {}
    for client in clients:
        try:
            versions[client] = install(client, newest=newest)
            say(f"{client.name} {versions[client]}")
        except Missing as missing:
            say(f"{client.name} is left out: {missing}")
    return versions


def run(template: Template, shell: str, versions: Mapping[Client, str]) -> None:
    """Run clients against one server with one template, and keep their outcomes."""

    def tell(client: Client, found: Outcome) -> None:
        keep(template, shell, {client.name: found})
        say(f"{template.name}: {shell}: {client.name}: {told(found)}")

    say(f"{template.name}: {shell} is starting")
    folder = RECORDINGS / template.file / shell.replace(" ", "-")
    Gate(template, shell, folder).run(versions, tell)


def told(found: Outcome) -> str:
    """Return an outcome in one line."""
    worked = "works" if not found.lacks else "; ".join(found.lacks)
    refused = f", {len(found.refused)} refused" if found.refused else ""
    tokens = ", ".join(f"{computed}/{new}" for new, computed in found.follow_ups)
    return f"{worked}{refused}; computed/new {tokens or 'unknown'}; thinking {found.thinking}"


def file_of(template: str, shell: str) -> Path:
    """Return the file of the outcomes with one template on one server."""
    return RESULTS / f"{template}-{shell}.json".lower().replace(" ", "-")


def read_results() -> Results:
    """Return the outcomes that are kept, of this run and of earlier ones."""
    results: dict[str, dict[str, dict[str, Outcome]]] = {}
    for template in TEMPLATES:
        for shell in SHELLS:
            file = file_of(template.name, shell)
            kept = json.loads(file.read_text()) if file.exists() else {}
            by_shell = results.setdefault(template.name, {})
            by_shell[shell] = {client: Outcome(**found) for client, found in kept.items()}
    return results


def keep(template: Template, shell: str, found: Mapping[str, Outcome]) -> None:
    """Keep outcomes for the page, beside those of other clients."""
    file = file_of(template.name, shell)
    file.parent.mkdir(parents=True, exist_ok=True)
    kept = json.loads(file.read_text()) if file.exists() else {}
    kept |= {client: asdict(each) for client, each in found.items()}
    file.write_text(json.dumps(kept, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    sys.exit(main())
