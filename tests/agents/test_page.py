"""The guide shows each client as the gate sets it up."""

from tests.agents.clients import CLIENTS
from tests.agents.page import GUIDE, guide
from tests.clients.servers import ROOT


def test_the_guide_shows_the_clients() -> None:
    """`python -m tests.agents --write` writes it."""
    text = (ROOT / GUIDE).read_text()
    assert guide(text) == text
    assert all(f"### {client.name}\n" in text for client in CLIENTS)
