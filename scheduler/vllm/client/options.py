"""The options of `vllm serve`, parsed by vLLM: those of its engine and of its HTTP server."""

from argparse import ArgumentError, Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.utils.argparse_utils import FlexibleArgumentParser

from caesura.scheduler.errors import UsageError
from caesura.scheduler.serve_options import Acts, acts, check_flags, refused

try:
    from vllm.entrypoints.common.cli_args import make_arg_parser  # since vLLM 0.33
except ModuleNotFoundError:
    from vllm.entrypoints.launchers.cli_args import make_arg_parser

_ENGINE = frozenset(each.name for each in fields(AsyncEngineArgs))


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """Parsed options of `vllm serve`."""

    engine: Mapping[str, Any]
    """The fields of `AsyncEngineArgs` that were given another value than their default."""
    server: Mapping[str, Any]
    """All options that were given another value than their default; vLLM's server reads some."""


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
    return make_arg_parser(FlexibleArgumentParser(add_help=False, exit_on_error=False))
