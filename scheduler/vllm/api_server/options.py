"""The options of `vllm serve`: those of the engine, and those of vLLM's HTTP server."""

from argparse import ArgumentError, Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.utils.argparse_utils import FlexibleArgumentParser

from caesura.scheduler.errors import UsageError

try:
    from vllm.entrypoints.common.cli_args import make_arg_parser  # since vLLM 0.33
except ModuleNotFoundError:
    from vllm.entrypoints.launchers.cli_args import make_arg_parser

_BEFORE = "give it to `caesura serve`, before `--`"
_ONE_SERVER = "`caesura serve` is one process with one engine; `vllm serve` has this option"
_OURS = {
    "model_tag": "name the model with --model, before `--`",
    "model": _BEFORE,
    "served_model_name": _BEFORE,
    "host": _BEFORE,
    "port": _BEFORE,
    "api_key": _BEFORE,
    "allowed_origins": "give --allowed-origin to `caesura serve`, before `--`",
    "config": "write its options behind `--`",
    "headless": _ONE_SERVER,
    "api_server_count": _ONE_SERVER,
    "grpc": _ONE_SERVER,
    "grpc_port": _ONE_SERVER,
    "uds": _ONE_SERVER,
    "ssl_keyfile": "put a proxy with TLS in front of it",
    "ssl_certfile": "put a proxy with TLS in front of it",
    "tokens_only": _ONE_SERVER,
}
"""Options that have no effect here, with what to do instead."""
_ENGINE = frozenset(each.name for each in fields(AsyncEngineArgs))


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """Parsed options of `vllm serve`."""

    engine: Mapping[str, Any]
    """The fields of `AsyncEngineArgs` that were given another value than their default."""
    server: Mapping[str, Any]
    """The options of vLLM's HTTP server that were given another value than their default."""


def parse_serve_options(arguments: Sequence[str]) -> ServeOptions:
    """Return the parsed options. Raises `UsageError` for unknown options and invalid values."""
    parser = _parser()
    defaults = vars(parser.parse_args([]))
    try:
        given, unknown = parser.parse_known_args(list(arguments))
    except (ArgumentError, ValueError, TypeError, SystemExit) as error:
        raise UsageError(f"vLLM does not take these arguments: {error}") from error
    if unknown:
        raise UsageError(f"vLLM does not know {' '.join(unknown)}; see `vllm serve --help=all`")
    changed = {key: value for key, value in vars(given).items() if value != defaults[key]}
    for name in changed:
        if name in _OURS:
            raise UsageError(f"--{name.replace('_', '-')} has no effect behind `--`: {_OURS[name]}")
    return ServeOptions(
        engine={key: value for key, value in changed.items() if key in _ENGINE},
        server={key: value for key, value in changed.items() if key not in _ENGINE},
    )


def server_args(given: Mapping[str, Any]) -> Namespace:
    """Return the arguments that vLLM's server is built with: its defaults, and `given`."""
    args = _parser().parse_args([])
    for name, value in given.items():
        setattr(args, name, value)
    return args


def _parser() -> FlexibleArgumentParser:
    return make_arg_parser(FlexibleArgumentParser(add_help=False, exit_on_error=False))
