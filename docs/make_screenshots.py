"""Takes the pictures of the page in docs/images/ui/: `python docs/make_screenshots.py`.

The bundled model answers questions with tools on a KV cache that is too small for all of them, and
what is recorded of that is shown; Compare shows one workload, simulated under two policies. Needs
the package playwright and Chromium, and takes about three minutes. `--keep FILE.html` keeps the
page.
"""

import argparse
import asyncio
import os
import random
import shutil
import subprocess
import sys
import tempfile
from io import BytesIO
from pathlib import Path

from PIL import Image
from playwright.async_api import Browser, async_playwright

from caesura.runtime.cli.demo.services import population, price, weather
from caesura.runtime.launch import facts_of, record, start_engine
from caesura.runtime.recording.entries import Entry, Recording
from caesura.runtime.recording.files.export import write_html
from caesura.runtime.recording.recorder import Recorder
from caesura.runtime.recording.storage import reading
from caesura.runtime.recording.storage.store import Store
from caesura.runtime.sdk.agent import Agent
from caesura.runtime.tracing import conventions as names
from caesura.scheduler.messages import Sampling
from caesura.simulator.trace import read_trace
from caesura.tools.artifacts import ArtifactStore
from caesura.tools.config.caesura_toml import Config
from caesura.tools.config.paths import default_artifacts
from caesura.tools.people import Pending

PICTURES = Path(__file__).parent / "images" / "ui"
MOST_BYTES = 200_000
QUESTIONS = (
    "How much do {n} lamps cost?",
    "What is the weather in Paris and in Rome?",
    "How many people live in Oslo?",
    "What is {n} * 17?",
    "What time is it in Tokyo?",
    "How much do {n} chairs cost?",
    "What is the weather in Berlin?",
    "Draw a bar chart of oak {n}, pine 7 and birch 9.",
    "Who built the Pantheon?",
    "Ask the user which colour they like.",
    "What is the weather in Atlantis?",
)
ASKED, PER_SECOND = 60, 6.0
Held = tuple[Recording, list[Entry]]

SMALL = ("--num-gpu-blocks-override", "41", "--max-model-len", "1024")
"""A KV cache for about six of the questions."""
CONFIG = Config(tools={"search": {"corpus": "bundled", "results": 1, "result_tokens": 60}})
BUILT_IN = ("calculator", "clock", "search", "render_chart", "ask_user")
STUDY = ("-w", "mix", "-p", "caesura,preserve", "--rate", "5", "--seconds", "40", "--seeds", "1")
BROWSER = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking")


async def answer(item: Pending) -> str:
    """Answer what the model asks a person, after a while."""
    await asyncio.sleep(4.0)
    return "green"


async def work(folder: Path) -> Held:
    """Record the bundled model under load."""
    drawn = random.Random(7)
    engine = await start_engine(None, vllm_args=SMALL, connector={"host_gib": 0.1})
    store = Store(folder / "traces.sqlite")
    facts = await facts_of(engine)
    recorder = Recorder(store, "caesura-tiny, 60 questions", "serve", facts, content=True)
    stop = record(engine, recorder)
    agent = Agent(
        engine,
        [*BUILT_IN, weather, price, population],
        config=CONFIG,
        sampling=Sampling(max_tokens=120, seed=7),
        on_question=answer,
        recorder=recorder,
    )
    try:
        async with agent, asyncio.TaskGroup() as group:
            for index in range(ASKED):
                question = QUESTIONS[index % len(QUESTIONS)].format(n=3 + index)
                group.create_task(agent.run(question))
                await asyncio.sleep(drawn.expovariate(PER_SECOND))
    finally:
        stop()
        await engine.close()
        recorder.close()
    (made,) = reading.recordings(store.path)
    return made, list(reading.entries(store.path, int(made.id)))


def simulated(folder: Path) -> list[Held]:
    """One workload under two policies."""
    out = folder / "study"
    caesura = Path(sys.executable).with_name("caesura")
    command = [caesura, "simulate", *STUDY, "--trace", "--quiet", "-o", out]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    traces = [read_trace(out / "trace" / f"{name}.jsonl") for name in ("caesura", "preserve")]
    return [(Recording.from_public(head), list(entries)) for head, entries in traces]


def views(entries: list[Entry]) -> dict[str, str]:
    """The address of each picture, with what is most worth seeing in it."""
    pauses = [entry for entry in entries if entry["kind"] == "pause" and entry["decisions"]]
    dear = max(pauses, key=lambda pause: pause["regret"] or 0.0)
    spans = [entry for entry in entries if entry["kind"] == "span"]
    drew = next(one["trace"] for one in spans if one["attributes"].get(names.TOOL_ARTIFACTS))
    run = next(one for one in spans if one["trace"] == drew and one["parent"] is None)
    chat = run["attributes"].get(names.CONVERSATION_ID, run["trace"])
    chosen = f"sel={dear['request']}&pause={dear['at']}"
    return {
        "timeline": f"timeline?rec=1&{chosen}",
        "decision": f"decision/{dear['request']}/{dear['at']}?rec=1",
        "decisions": "decision?rec=1",
        "memory": "memory?rec=1",
        "session": f"session/{chat}?rec=1",
        "tools": "tools?rec=1",
        "predictions": "predictions?rec=caesura",
        "compare": "compare?rec=caesura&with=preserve",
    }


async def take(browser: Browser, page: Path, addresses: dict[str, str], scheme: str) -> None:
    """Take every picture in one theme."""
    context = await browser.new_context(
        viewport={"width": 1440, "height": 900},
        color_scheme="dark" if scheme == "dark" else "light",
        timezone_id="UTC",
        reduced_motion="reduce",
    )
    tab = await context.new_page()
    await tab.goto(page.as_uri())
    for name, address in addresses.items():
        await tab.evaluate("hash => { location.hash = hash }", f"#/{address}")
        await tab.wait_for_selector("main > *")
        await tab.wait_for_timeout(1500)  # charts are drawn when their size is known
        path = PICTURES / f"{name}-{scheme}.png"
        with Image.open(BytesIO(await tab.screenshot())) as taken:
            # A palette of 256 colours is enough for a page, and makes a third of the bytes.
            taken.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)
        size = path.stat().st_size
        print(f"{path.name}: {size // 1000} kB{'' if size <= MOST_BYTES else ', too large'}")
    await context.close()


async def main(keep: Path | None) -> None:
    """Record, simulate, and take the pictures."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # Nothing of the user's is used or changed, so that the pictures are the same anywhere.
        for variable in ("XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME"):
            os.environ[variable] = str(folder / variable.lower())
        worked = await work(folder)
        page = keep or folder / "page.html"
        write_html([worked, *simulated(folder)], page, ArtifactStore(default_artifacts()))
        PICTURES.mkdir(parents=True, exist_ok=True)
        async with async_playwright() as playwright:
            chromium = shutil.which("chromium")
            browser = await playwright.chromium.launch(executable_path=chromium, args=[*BROWSER])
            for scheme in ("light", "dark"):
                await take(browser, page, views(worked[1]), scheme)
            await browser.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", type=Path, metavar="FILE.html", help="keep the page there")
    asyncio.run(main(parser.parse_args().keep))
