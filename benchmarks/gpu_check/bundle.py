"""Pack vLLM's GPU build, and what it needs beside PyTorch, for a machine without network.

vLLM's wheel has kernels for many chips, and is some 330 MB. The bundle has those of one chip, some
50 MB. Over there `bash setup.sh FOLDER` unpacks it, and PYTHONPATH=FOLDER makes it importable.
Quantized kernels, FlashInfer, DeepGEMM and FlashAttention 2 are left out.
"""

import argparse
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable, Sequence
from email.parser import Parser
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from benchmarks.evidence.depends import ROOT
from benchmarks.gpu_check.fat_binaries import for_chip

LIBRARIES = (
    "vllm/_C_stable_libtorch.abi3.so",
    "vllm/_moe_C_stable_libtorch.abi3.so",
    "vllm/_flashmla_C.abi3.so",
    "vllm/_flashmla_extension_C.abi3.so",
    "vllm/cumem_allocator.abi3.so",
    "vllm/fs_io_C.abi3.so",
    "vllm/spinloop.abi3.so",
    "vllm/vllm_flash_attn/_vllm_fa3_C.abi3.so",
)
LEFT_OUT = re.compile(r"\.so$|^vllm/vllm-rs$|^vllm/third_party/(deep_gemm|fmha_sm100)/|swagger")
"""Files of the wheel that the bundle does without, but for `LIBRARIES`."""
UNREAD = re.compile(r"^(mistral_common/data|pycountry/locales|bin)/|/tests?/|\.pyc$")
"""Large files of other packages that nothing here reads."""
SETUP = """set -e
to=${1:?name a folder}
mkdir -p "$to"
for part in "$(dirname "$0")"/*.tar.xz; do tar -C "$to" -xJf "$part" & done
wait
"""
PLATFORMS = (34, 31, 28, 27, 17)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu_check.bundle",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--out", type=Path, default=Path(".cache/gpu-bundle"), help="folder of the bundle")
    add("--vllm", default="0.32.0", help="the release of vLLM")
    add("--python", default="3.12", help="the Python over there")
    add("--chip", type=int, default=90, help="compute capability without its point: 90 for H100")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    """Download, unpack, make small and pack; return the exit code of what failed, else 0."""
    args = parse(arguments)
    args.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        wheels, site = Path(folder, "wheels"), Path(folder, "site")
        try:
            _pip(args.python, "download", "--dest", str(wheels), f"vllm=={args.vllm}")
            wheel = next(wheels.glob("vllm-*.whl"))
            _unpack(wheel, site, args.chip)
            _install(wheel, args.python, Path(folder), site)
        except subprocess.CalledProcessError as error:
            return int(error.returncode)
        libraries = {site / name for name in LIBRARIES}
        files = {path for path in site.rglob("*") if path.is_file()} - libraries
        read = [path for path in files if not UNREAD.search(path.relative_to(site).as_posix())]
        _pack(args.out / "libraries.tar.xz", site, libraries)
        _pack(args.out / "packages.tar.xz", site, read)
    (args.out / "setup.sh").write_text(SETUP)
    size = sum(path.stat().st_size for path in args.out.iterdir())
    print(f"{args.out}: {size / 1e6:.0f} MB")
    return 0


def _pip(python: str, *words: str) -> None:
    """Run pip for another Python, without what packages need."""
    target = ["--python-version", python, "--implementation", "cp", "--only-binary=:all:"]
    target += [part for n in PLATFORMS for part in ("--platform", f"manylinux_2_{n}_x86_64")]
    target += ["--platform", "manylinux2014_x86_64", "--no-deps", "--quiet"]
    subprocess.run([sys.executable, "-m", "pip", *words[:1], *target, *words[1:]], check=True)


def _unpack(wheel: Path, site: Path, chip: int) -> None:
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name in LIBRARIES:
                path = site / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(for_chip(archive.read(name), chip))
            elif not LEFT_OUT.search(name):
                archive.extract(name, site)


def _install(wheel: Path, python: str, folder: Path, site: Path) -> None:
    """Install what is beside vLLM: by its own pins, and else by those of our tests."""
    names = (ROOT / "requirements" / "gpu-bundle.in").read_text().splitlines()
    pins = (ROOT / "requirements" / "dev.txt").read_text().splitlines()
    wanted, left = requirements(_needs(wheel), names, pins)
    constraints = folder / "constraints.txt"
    constraints.write_text("\n".join(left) + "\n")
    _pip(python, "install", "--target", str(site), "-c", str(constraints), *wanted)


def _needs(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        name = next(each for each in archive.namelist() if each.endswith(".dist-info/METADATA"))
        return Parser().parsestr(archive.read(name).decode()).get_all("Requires-Dist") or []


def requirements(
    needs: Iterable[str], names: Iterable[str], pins: Iterable[str]
) -> tuple[list[str], list[str]]:
    """Return what to install: each name as vLLM pins it; and the pins of all others."""
    asked = [Requirement(need) for need in needs]
    theirs = {
        canonicalize_name(one.name): str(one.specifier)
        for one in asked
        if any(each.operator == "==" for each in one.specifier)
    }
    wanted = [
        f"{name}{theirs.get(canonicalize_name(name), '')}"
        for name in names
        if name and not name.startswith("#")
    ]
    left = [
        pin
        for pin in pins
        if re.match(r"[\w.-]+==", pin) and canonicalize_name(pin.split("==")[0]) not in theirs
    ]
    return wanted, left


def _pack(archive: Path, site: Path, files: Iterable[Path]) -> None:
    with tarfile.open(archive, "w:xz") as packed:
        for path in sorted(files):
            packed.add(path, path.relative_to(site).as_posix())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
