"""Hosts by the names of `--backend`."""

from pathlib import Path

import pytest

from caesura.planning.run import sleep
from caesura.planning.run.backends import host_named
from caesura.planning.run.host import Replica
from caesura.planning.run.sleep import SleepHost
from tests.planning.run.sleeping import SMALL, OneEngineHost


async def test_the_sleep_level_of_the_command_is_the_level_of_the_sleep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def available() -> None:
        """Stand for a machine with sleep mode."""

    made: list[OneEngineHost] = []
    monkeypatch.setattr(sleep, "check_sleep_mode", available)
    monkeypatch.setattr(sleep, "ProcessHost", lambda *_, **__: OneEngineHost(made))
    host = await host_named("sleep", 1, tmp_path, sleep_level=2)
    assert isinstance(host, SleepHost)
    one = Replica(SMALL, 0, (0,))
    await host.place(one)
    await host.load(one)
    await host.evict(one)
    server = made[1].server
    assert server is not None and server.client.calls == ["sleep 2 abort"]
    await host.close()


async def test_an_unknown_name_is_told_with_those_that_are_known(tmp_path: Path) -> None:
    with pytest.raises(LookupError, match="'cloud'; choose from: processes, sleep, ray"):
        await host_named("cloud", 1, tmp_path)
