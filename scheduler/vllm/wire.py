"""What the API process and the engine's process tell each other in vLLM's own messages.

The keys name Caesura's data. Control messages carry a secret besides. Such a message travels as a
request, and a client of vLLM's own server may set all that marks one. Only the process that started
the engine, and processes of the same user, know the secret. It is in the environment, which an
engine's process inherits. Without it, as under `vllm serve`, it is in a file that only the user can
read.
"""

import hmac
import os
import secrets
from pathlib import Path

from caesura.scheduler.errors import UsageError
from caesura.scheduler.paths import control_secret_path

WATCH_KEY = "caesura_watch"
"""Key in `SamplingParams.extra_args` of the `WatchPlan` of a new turn."""


REPLAYED_KEY = "caesura_replayed"
"""Key in `SamplingParams.extra_args` of how many of the prompt's last tokens belong to the turn.

The model sampled them in an engine that has died. The watch and the grammar read them first.
"""


WHOLE_TURN_KEY = "caesura_grammar_of_whole_turn"
"""Key in `SamplingParams.extra_args` of a grammar that also covers the turn's thinking."""


CONTROL_KEY = "caesura_control"
"""Key in `SamplingParams.extra_args` of a control message, which is never enqueued."""


CONTROL_SECRET_KEY = "caesura_control_secret"
"""Key in `SamplingParams.extra_args` of the secret, without which a control message is refused."""


REPORT_KEY = "caesura"
"""Key in `RequestOutput.kv_transfer_params` of the report on a turn: why it stopped, how resumed.

Only the last output of a turn carries one: vLLM merges unread outputs and keeps the later ones'
parameters, so that anything sent before the stop could be lost.
"""


SECRET = "CAESURA_CONTROL_SECRET"
"""The environment variable that holds the secret."""


RAY_COPIES = "VLLM_RAY_EXTRA_ENV_VARS_TO_COPY"
"""vLLM's list of variables that its processes on other nodes of a Ray cluster get too."""


_BYTES = 32


def share_by_environment() -> None:
    """Make a secret for the engines that this process starts, unless there is one."""
    os.environ.setdefault(SECRET, secrets.token_hex(_BYTES))
    copied = [name for name in os.environ.get(RAY_COPIES, "").split(",") if name.strip()]
    if SECRET not in copied:
        os.environ[RAY_COPIES] = ",".join([*copied, SECRET])


def secret_to_send() -> str:
    """Return the secret of the engine's process; without one, make the user's file.

    Raises `UsageError` if the file can be neither read nor made.
    """
    known = _known()
    if known is not None:
        return known
    path = control_secret_path()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Linking a complete file is atomic, and fails if another process was faster.
        part = path.with_name(f"{path.name}.{os.getpid()}")
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_hex(_BYTES))
        try:
            os.link(part, path)
        except FileExistsError:
            pass
        finally:
            part.unlink()
        return path.read_text()
    except OSError as error:
        raise UsageError(
            f"the secret of control messages cannot be kept in {path} ({error.strerror}): set"
            f" {SECRET} to a random text where vLLM is started"
        ) from error


def is_secret(given: object) -> bool:
    """Return whether a message carries the secret; without a secret none does."""
    known = _known()
    if known is None or not isinstance(given, str):
        return False
    # The comparison takes constant time, so its duration reveals no prefix of the secret.
    return hmac.compare_digest(given.encode(errors="replace"), known.encode())


def _known() -> str | None:
    """Return the secret, or None where nobody has made one."""
    if told := os.environ.get(SECRET):
        return told
    return _read(control_secret_path())


def _read(path: Path) -> str | None:
    try:
        return path.read_text() or None
    except (OSError, UnicodeDecodeError):
        return None
