"""The editing task of the gate: a scratch repository, what is to become of it, and the turns."""

import shutil
import subprocess
from pathlib import Path

from tests.agents.templates import Turn
from tests.formats.rendering import Call

CALC = 'def add(a, b):\n    return a - b\n\n\nprint("naïve sum:", add(2, 3))\n'
README = '# Scratch\n\nA tiny calculator with a "bug" & an <odd> file.\n'
WRONG = "    return a - b"
RIGHT = '    return a + b  # "plus" – mended'
MENDED = CALC.replace(WRONG, RIGHT)
PRINTED = "naïve sum: 5\n"
RUN = "python3 calc.py | tee out.txt"
TEST = f"{RUN} | grep 5"
"""What fails unless the sum is right."""
LOOK = "cat out.txt"
MEND = f"""python3 - <<'END'
from pathlib import Path
text = Path("calc.py").read_text()
Path("calc.py").write_text(text.replace({WRONG!r}, {RIGHT!r}))
END"""
"""The edit, for clients that edit by the shell."""

_PLAN = (
    "The user says that the sum is wrong. There are two files here, and one of them is a program. "
    "I read them before I change anything, so that my edit names a line as it stands there."
)
_FOUND = (
    "The function subtracts where it should add. One line is to change, and nothing else. Its "
    "indentation is four spaces, which the edit has to keep, or Python refuses the file."
)
_CHECK = (
    "The edit is made. Whether it is right I only know once the program has run, so I run it, and "
    "keep what it prints in a file beside it."
)
_SEEN = "It printed five, as two and three make. So the task is done."
_AGAIN = (
    "The user asks what the file holds. I could tell it from memory, but a look costs little, and "
    "the file may have changed since."
)


def task(
    read: tuple[Call, ...], edit: Call, run: Call, end: Turn | None = None
) -> tuple[Turn, ...]:
    """Return the turns of the first prompt: read, edit, run, answer."""
    return (
        Turn(_PLAN, "", read),
        Turn(_FOUND, "The sign is wrong.", (edit,)),
        Turn(_CHECK, "", (run,)),
        end or Turn(_SEEN, "The sum is right now."),
    )


def question(look: Call, end: Turn | None = None) -> tuple[Turn, ...]:
    """Return the turns of the second prompt: look at what was written, answer."""
    return Turn(_AGAIN, "", (look,)), end or Turn(_SEEN, "The file holds 5.")


def prompt(name: str, number: int) -> str:
    """Return the first or second prompt of a client; its mark is what `mark` returns."""
    asked = ("The sum of calc.py is wrong: mend it and run it.", "What does out.txt hold?")
    return f"{asked[number - 1]} {mark(name, number)}"


def mark(name: str, number: int) -> str:
    """Return what a prompt of a client holds and no other text."""
    return f"(task {name} {number})"


def lay(repository: Path) -> None:
    """Make the scratch repository anew."""
    shutil.rmtree(repository, ignore_errors=True)
    repository.mkdir(parents=True)
    (repository / "calc.py").write_text(CALC)
    (repository / "README.md").write_text(README)
    author = ("-c", "user.name=Test", "-c", "user.email=test@example.com")
    for command in (["init", "-q"], ["add", "-A"], [*author, "commit", "-qm", "First"]):
        subprocess.run(["git", "-C", str(repository), *command], check=True)


def undone(repository: Path) -> list[str]:
    """Return what the repository still lacks; an empty list once the task is done."""
    calc, out = repository / "calc.py", repository / "out.txt"
    lacks = []
    if not calc.exists() or calc.read_text() != MENDED:
        lacks.append("calc.py is not mended")
    if not out.exists() or out.read_text() != PRINTED:
        lacks.append("calc.py did not run")
    return lacks
