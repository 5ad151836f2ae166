"""A pytest plugin for vLLM's tests: it puts our scheduler classes in the place of vLLM's.

It also writes one JSON line per outcome, so that two runs can be compared test by test, and gives
the few fixtures that vLLM's conftest.py, which needs packages we lack, would give.
"""

from __future__ import annotations

import functools
import importlib
import json
import logging
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

STOCK, OURS = "stock", "caesura"
OUR_MODULE = "caesura.scheduler.vllm"
# Modules that import vLLM's classes by name, for good: the first two derive from them (ours too),
# and a diffusion model never gets our scheduler.
DERIVED = ("vllm.v1.core.sched.async_scheduler", "vllm.v1.core.sched.diffusion_scheduler")
CONFTESTS = ("tests.v1.kv_connector.unit.offloading_connector.conftest",)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("caesura")
    group.addoption("--schedulers", choices=(STOCK, OURS), default=STOCK)
    group.addoption("--outcomes", type=Path, required=True)


def pytest_configure(config: pytest.Config) -> None:
    built = _count_schedulers()
    if config.getoption("--schedulers") == OURS:
        _swap()
    # After the swap: these import vLLM's scheduler by name.
    for name in CONFTESTS:
        config.pluginmanager.import_plugin(name)
    config.pluginmanager.register(Recorder(config, built))


def _swap() -> None:
    """Rebind vLLM's names before any test module imports them."""
    for name in DERIVED:
        importlib.import_module(name)
    ours = importlib.import_module(OUR_MODULE)
    sched = importlib.import_module("vllm.v1.core.sched.scheduler")
    async_sched = importlib.import_module("vllm.v1.core.sched.async_scheduler")
    sched.Scheduler = async_sched.Scheduler = ours.CaesuraScheduler
    async_sched.AsyncScheduler = ours.CaesuraAsyncScheduler
    _in_vllms_order()
    _equip_unbuilt()


def _in_vllms_order() -> None:
    """Rank by arrival, as vLLM does: its tests say who is admitted first."""
    compose = importlib.import_module(f"{OUR_MODULE}.engine.compose")
    settings_of = compose.settings_of
    compose.settings_of = lambda config: replace(settings_of(config), ranking="fcfs")
    # Its tests draft by methods that a served engine refuses.
    compose.check_speculation = lambda config: None


def _equip_unbuilt() -> None:
    """Give parts that do nothing to schedulers that vLLM's tests make without `__init__`."""
    parts = MagicMock()
    parts.control.take.return_value = False
    parts.stops.cut.return_value = False
    parts.served.get.return_value = None
    parts.port.stops.return_value = False
    scheduler = importlib.import_module(f"{OUR_MODULE}.engine.scheduler")
    scheduler.PausingScheduler.parts = parts


def _count_schedulers() -> Counter[str]:
    """Count the schedulers built per class: the proof that the swap reached the tests."""
    scheduler = importlib.import_module("vllm.v1.core.sched.scheduler").Scheduler
    built: Counter[str] = Counter()
    init = scheduler.__init__

    @functools.wraps(init)
    def counting(self: Any, *args: Any, **kwargs: Any) -> None:
        built[type(self).__name__] += 1
        init(self, *args, **kwargs)

    scheduler.__init__ = counting
    return built


class Recorder:
    """Writes what happens as JSON lines, at once, so that a crash loses nothing."""

    def __init__(self, config: pytest.Config, built: Counter[str]) -> None:
        self.config = config
        self.built = built
        self.file = config.getoption("--outcomes").open("w", buffering=1)

    def write(self, **row: Any) -> None:
        self.file.write(json.dumps(row) + "\n")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.write(id=report.nodeid, outcome="error", detail=_detail(report))

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.write(collected=len(session.items))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        outcome = self.config.hook.pytest_report_teststatus(report=report, config=self.config)[0]
        if outcome:
            describe = getattr(report, "_sub_test_description", str)
            name = f"{report.nodeid} {describe()}".strip()
            self.write(id=name, outcome=outcome, detail=_detail(report))

    def pytest_sessionfinish(self) -> None:
        self.write(built=self.built)
        self.file.close()


def _detail(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Say where and how a test failed; nothing for the others."""
    if not report.failed:
        return ""
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is None:
        return report.longreprtext.strip()
    return f"{Path(crash.path).name}:{crash.lineno}: {crash.message}"


@pytest.fixture
def caplog_vllm(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """Capture vLLM's log, which does not propagate to where `caplog` listens."""
    logger = logging.getLogger("vllm")
    propagate, logger.propagate = logger.propagate, True
    with caplog.at_level(logging.INFO):
        yield caplog
    logger.propagate = propagate
