"""A Dockerfile without Docker: its commands run in a fresh folder, in place of an image.

    python -m tests.deploy.image deploy/Dockerfile.cpu FOLDER

runs them as they stand, with pip's own settings, and leaves FOLDER/opt/caesura. What only a root of
a container can do is left out: packages of Debian, and users.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
OF_CONTAINERS = ("apt-get", "useradd", "install --directory", "rm -rf /var")
"""How commands begin that only the root of a container runs."""


class Instruction(NamedTuple):
    word: str
    text: str


def instructions(text: str) -> Iterator[Instruction]:
    """Yield the instructions of a Dockerfile, with the lines that continue them."""
    bare = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    for line in re.sub(r"\\\n\s*", "", bare).splitlines():
        if line.strip():
            word, _, rest = line.partition(" ")
            yield Instruction(word, rest.strip())


def included(root: Path) -> list[Path]:
    """Return the files that git tracks and .dockerignore lets in, relative to the root.

    The patterns are those of our file: `*`, names that are let in, and endings that are kept out.
    """
    rules = [
        line
        for line in (root / ".dockerignore").read_text().splitlines()
        if line and not line.startswith("#")
    ]
    assert rules[0] == "*"
    names = [rule[1:] for rule in rules if rule.startswith("!")]
    assert all("*" not in name for name in names)
    told = subprocess.run(
        ["git", "-C", str(root), "ls-files", "-z"], check=True, capture_output=True, text=True
    )
    tracked = [Path(name) for name in told.stdout.split("\0") if name]
    return [path for path in tracked if any(path.is_relative_to(name) for name in names)]


def shell_of(text: str) -> str:
    """Return a RUN instruction's commands without those that only containers can run."""
    commands = [command.strip() for command in text.split(" && ")]
    return " && ".join(each for each in commands if not each.startswith(OF_CONTAINERS)) or "true"


def build(
    dockerfile: Path,
    folder: Path,
    arguments: Mapping[str, str] | None = None,
    skip: Sequence[str] = (),
) -> list[str]:
    """Run the first stage and what else can run of a Dockerfile; return its entry point.

    `arguments` are those of the build. A RUN that holds a text of `skip` is left out. `/opt` and
    `/src` are folders in `folder`. Raises `CalledProcessError` for a command that fails.
    """
    variables: dict[str, str] = {}
    entry: list[str] = []
    source, opt = folder / "src", folder / "opt"
    for at in (source, opt):
        at.mkdir(parents=True, exist_ok=True)

    def placed(text: str) -> str:
        return re.sub(r"(?<![\w.])/(opt|src)(?=/)", rf"{folder}/\1", text)

    for word, text in instructions(dockerfile.read_text()):
        if word == "ARG":
            name, _, default = text.partition("=")
            variables[name] = (arguments or {}).get(name, default.strip('"'))
        elif word == "ENV":
            name, _, value = text.partition("=")
            variables[name] = placed(value).replace("$PATH", os.environ["PATH"])
        elif word == "COPY" and not text.startswith("--from"):
            copy(text.split()[0], source)
        elif word == "RUN" and not any(each in text for each in skip):
            environment = {**os.environ, **variables}
            command = ["sh", "-eu", "-c", placed(shell_of(text))]
            subprocess.run(command, check=True, cwd=source, env=environment)
        elif word == "ENTRYPOINT":
            entry = json.loads(text)
    return [shutil.which(entry[0], path=variables["PATH"]) or entry[0], *entry[1:]]


def copy(what: str, target: Path) -> None:
    """Copy what .dockerignore lets in, links as links."""
    for path in included(ROOT):
        if what == "." or path.is_relative_to(what):
            (target / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / path, target / path, follow_symlinks=False)


if __name__ == "__main__":
    file, place = map(Path, sys.argv[1:])
    print(shlex.join(build(file, place.resolve())))
