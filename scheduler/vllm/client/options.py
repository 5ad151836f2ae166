"""The options of `vllm serve`, parsed by vLLM: those of its engine and of its HTTP server."""

from argparse import ArgumentError, Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from types import ModuleType
from typing import Any

from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.utils.argparse_utils import FlexibleArgumentParser

from caesura.scheduler.errors import UsageError
from caesura.scheduler.serve_options import Acts, acts, check_flags, refused

_ENGINE = frozenset(each.name for each in fields(AsyncEngineArgs))
_FORMAT = "use `--format NAME`; the default is detected from the model's chat template"
SERVER_OPTIONS = {
    "--tool-call-parser": _FORMAT,
    "--enable-auto-tool-choice": _FORMAT,
    "--chat-template": "save the template as chat_template.jinja in the model's directory",
}
"""Replacements for some options of vLLM's HTTP server, where it does not run."""


WHITE_SPACE = "structured_outputs_config"
"""The engine argument that says whether grammars of JSON allow white space."""
_CHOOSES = f"--{WHITE_SPACE.replace('_', '-')}"


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """Parsed options of `vllm serve`."""

    engine: Mapping[str, Any]
    """The fields of `AsyncEngineArgs` that were given another value than their default."""
    server: Mapping[str, Any] = field(default_factory=dict)
    """All options that were given another value than their default; vLLM's server reads some."""


def parse(arguments: Sequence[str], serves: bool) -> ServeOptions:
    """Return the parsed options; those of vLLM's server may be among them if it `serves`.

    Raises `UsageError` for what `parse_engine_args` and `parse_serve_options` refuse.
    """
    return parse_serve_options(arguments) if serves else ServeOptions(parse_engine_args(arguments))


def parse_engine_args(arguments: Sequence[str]) -> dict[str, Any]:
    """Return the fields of `AsyncEngineArgs` that the flags of `vllm serve` set.

    Raises `UsageError` for unknown flags and invalid values.
    """
    parser = FlexibleArgumentParser(add_help=False, exit_on_error=False)
    AsyncEngineArgs.add_cli_args(parser)
    defaults = vars(parser.parse_args([]))
    try:
        given, unknown = parser.parse_known_args(list(arguments))
    except Exception as error:
        raise UsageError(f"vLLM does not take these arguments: {error}") from error
    if unknown:
        raise UsageError(_why_unknown(unknown))
    # Here the default is a choice too, since it is not Caesura's.
    chosen = {WHITE_SPACE for each in arguments if each.replace("_", "-").startswith(_CHOOSES)}
    return {
        key: value for key, value in vars(given).items() if value != defaults[key] or key in chosen
    }


def _why_unknown(arguments: Sequence[str]) -> str:
    """Return the error for unknown arguments, some of which vLLM's HTTP server has."""
    server = _cli_args().FrontendArgs.add_cli_args(FlexibleArgumentParser(add_help=False))
    known = {name for action in server._actions for name in action.option_strings}
    flags = [each.partition("=")[0].replace("_", "-") for each in arguments if each[:2] == "--"]
    flags = [flag for flag in flags if flag in known]
    if not flags:
        return f"vLLM does not know {' '.join(arguments)}; see `vllm serve --help=all`"
    fixes = [f"; {SERVER_OPTIONS[flag]}" for flag in flags if flag in SERVER_OPTIONS]
    return (
        f"{', '.join(flags)}: an option of vLLM's HTTP server, which does not run here; only engine"
        f" options are taken{''.join(dict.fromkeys(fixes))}"
    )


def parse_serve_options(arguments: Sequence[str]) -> ServeOptions:
    """Return the parsed options.

    Raises `UsageError` for unknown options, for invalid values, and for options that are refused
    or whose effect on all routes is not known.
    """
    check_flags(arguments)  # first, since the parser itself reads the file of `--config`
    parser = serve_parser()
    defaults = vars(parser.parse_args([]))
    try:
        given, unknown = parser.parse_known_args(list(arguments))
    except (ArgumentError, ValueError, TypeError, SystemExit) as error:
        raise UsageError(f"vLLM does not take these arguments: {error}") from error
    if unknown:
        raise UsageError(f"vLLM does not know {' '.join(unknown)}; see `vllm serve --help=all`")
    # Options without a default are in the namespace only if they are given.
    changed = {key: value for key, value in vars(given).items() if value != defaults.get(key)}
    for name in changed:
        # An option of the engine that a later release adds acts below all routes.
        if acts(name) is Acts.REFUSED or (acts(name) is None and name not in _ENGINE):
            raise refused(name)
    engine = {key: value for key, value in changed.items() if key in _ENGINE}
    return ServeOptions(engine=engine, server=changed)


def server_args(given: Mapping[str, Any]) -> Namespace:
    """Return the arguments that vLLM's server is built with: its defaults, and `given`."""
    args = serve_parser().parse_args([])
    for name, value in given.items():
        setattr(args, name, value)
    return args


def serve_parser() -> FlexibleArgumentParser:
    """Return vLLM's own parser of the options of `vllm serve`."""
    parser = FlexibleArgumentParser(add_help=False, exit_on_error=False)
    made: FlexibleArgumentParser = _cli_args().make_arg_parser(parser)
    return made


def _cli_args() -> ModuleType:
    """Return vLLM's module of its server's options; a late import, since it loads that server."""
    try:
        from vllm.entrypoints.common import cli_args  # since vLLM 0.33
    except ImportError:
        from vllm.entrypoints.launchers import cli_args
    return cli_args
