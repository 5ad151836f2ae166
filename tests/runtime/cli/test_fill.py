"""Options as dataclasses: what Typer shows of them, and what the command is given."""

from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from caesura.runtime.cli.options import filled


@dataclass(frozen=True)
class Lamp:
    colour: Annotated[str, typer.Option("--colour", "-c", help="Of its light.")] = "white"
    watts: Annotated[int, typer.Option(min=1)] = 5


@pytest.fixture
def app() -> typer.Typer:
    app = typer.Typer()

    @app.command()
    @filled
    def light(room: Annotated[str, typer.Argument()], lamp: Lamp, dim: bool = False) -> None:
        """Light a room."""
        typer.echo(f"{room} {lamp} {dim}")

    return app


def test_fields_are_options(app: typer.Typer) -> None:
    given = ["hall", "-c", "red", "--watts", "9", "--dim"]
    assert CliRunner().invoke(app, given).output == "hall Lamp(colour='red', watts=9) True\n"
    assert CliRunner().invoke(app, ["hall"]).output == "hall Lamp(colour='white', watts=5) False\n"


def test_options_are_checked_and_explained_as_any_other(app: typer.Typer) -> None:
    assert "Of its light." in CliRunner().invoke(app, ["--help"]).output
    refused = CliRunner().invoke(app, ["hall", "--watts", "0"])
    assert refused.exit_code == 2
    assert "--watts" in refused.output
