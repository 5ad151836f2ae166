"""The exit codes of known errors."""

import pytest
import typer

from caesura.runtime.cli.errors import ENGINE_LOST, mistakes_told
from caesura.runtime.errors import EngineFailed, UsageError
from caesura.runtime.supervision import EngineLost


@pytest.mark.parametrize(
    ("error", "code"),
    [(EngineLost("it died"), ENGINE_LOST), (EngineFailed("it died"), 1), (UsageError("no"), 1)],
)
def test_a_lost_engine_has_an_exit_code_of_its_own(error, code, capsys):
    with pytest.raises(typer.Exit) as ended, mistakes_told():
        raise error
    assert ended.value.exit_code == code
    assert capsys.readouterr().err == f"error: {error}\n"
