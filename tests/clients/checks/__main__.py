"""Run the checks against a server: `python -m tests.clients.checks URL MODEL [PART OF A NAME]`.

It needs the libraries of requirements/clients.txt alone, and prints a line of JSON for each check.
"""

import importlib
import logging
import os
import sys
import warnings

from tests.clients.check import CHECKS, Server, run_all

MODULES = (
    "plain",
    "chat",
    "formats",
    "responses",
    "agents",
    "pydantic",
    "langchain",
    "lite",
    "smol",
    "messages",
    "server_tools",
)


def main() -> None:
    """Import the checks, and run those that were asked for."""
    # Libraries print, too: what they print goes to the errors.
    results = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)
    os.environ["OPENAI_AGENTS_DISABLE_TRACING"] = "1"
    os.environ["LANGSMITH_TRACING"] = "false"
    os.environ["OPENAI_API_KEY"] = "none"
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    for name in MODULES:
        importlib.import_module(f"tests.clients.checks.{name}")
    url, model, *part = sys.argv[1:]
    chosen = [
        each for each in CHECKS if all(word in f"{each.library} {each.feature}" for word in part)
    ]
    run_all(Server(url, model), chosen, results)


if __name__ == "__main__":
    main()
