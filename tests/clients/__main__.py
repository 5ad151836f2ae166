"""Check servers with client libraries: `python -m tests.clients [--shell NAME] [--write]`.

Each server runs the bundled model on the real engine. The checks run in the environments of
requirements/clients.txt and of tests/clients/node. Exits 1 if a check fails that
docs/reference/clients.md lists as passing.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.clients.check import Result
from tests.clients.libraries import check_commands, environment, versions
from tests.clients.servers import MODEL, ROOT, serving
from tests.clients.suites import SUITES, Suite
from tests.clients.table import PAGE, Key, failing, page, read

SHELLS = {
    "serve": "caesura serve",
    "plugin": "vllm serve with the plugin",
    "vllm": "vllm serve",
}


def main() -> int:
    """Run the checks, print what did not pass, and compare with the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--shell",
        choices=SHELLS,
        action="append",
        help="a server to check, repeatable; default: serve, and vllm with --write",
    )
    parser.add_argument("--write", action="store_true", help=f"write {PAGE}")
    parser.add_argument("--only", nargs="+", default=[], help="parts of library and feature")
    args = parser.parse_args()
    if args.write and args.only:
        parser.error("--write needs all checks: leave out --only")
    shells = args.shell or (["serve", "vllm"] if args.write else ["serve"])
    results: dict[str, dict[Key, Result]] = {}
    suites: list[list[str]] = []
    with tempfile.TemporaryDirectory(prefix="caesura-clients-") as folder:
        for name in (SHELLS[each] for each in shells):
            with serving(name, Path(folder)) as url:
                results[name] = checked(name, url, args.only)
                suites += [suite.row(name, url) for suite in SUITES if wanted(suite, args.only)]
    before = (ROOT / PAGE).read_text() if (ROOT / PAGE).exists() else ""
    worse = [
        (name, each)
        for name, found in results.items()
        if name != SHELLS["vllm"]
        for each in failing(found.values(), read(before, name))
    ]
    for name, each in worse:
        print(f"WORSE with {name}: {each.library}: {each.feature}: {each.reason}")
    for row in suites:
        print(*row, sep=" | ")
    if args.write:
        (ROOT / PAGE).write_text(page(results, versions(), suites))
    return 1 if worse and not args.write else 0


def wanted(suite: Suite, only: list[str]) -> bool:
    """Return whether all parts of a name are in a suite's."""
    return all(part in f"{suite.library} {suite.form}" for part in only)


def checked(name: str, url: str, only: list[str]) -> dict[Key, Result]:
    """Run the checks against one server; print those that do not pass, and the totals."""
    found: dict[Key, Result] = {}
    for command in check_commands():
        for result in _results([*command, url, MODEL, *only]):
            found[result.library, result.feature] = result
            if result.outcome != "pass":
                print(f"{name}: {result.library}: {result.feature}: {result.outcome}", flush=True)
                print(f"    {result.reason}", flush=True)
    passed = sum(each.outcome == "pass" for each in found.values())
    print(f"{name}: {passed} of {len(found)} checks pass", flush=True)
    return found


def _results(command: list[str]) -> Iterator[Result]:
    with subprocess.Popen(command, cwd=ROOT, env=environment(), stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for line in process.stdout:
            yield Result(**json.loads(line))
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with exit code {process.returncode}")


if __name__ == "__main__":
    sys.exit(main())
