"""Takes the pictures of the page in docs/images/ui/: `python docs/images/make_screenshots.py`.

The bundled model answers questions with tools on a KV cache that is too small for all of them, and
what is recorded of that is shown; Compare shows one workload, simulated under two policies. Needs
the package playwright and Chromium, and takes about three minutes. `--keep FOLDER` keeps
what was recorded there; with a folder that has it, only the page is made anew.
"""

import argparse
import asyncio
import json
import os
import random
import shutil
import tempfile
from io import BytesIO
from pathlib import Path

from PIL import Image
from playwright.async_api import Browser, Page, async_playwright

from caesura.runtime.cli.demo import population, price, weather
from caesura.runtime.launch import facts_of, record, start_engine
from caesura.runtime.recording import catalog
from caesura.runtime.recording import conventions as names
from caesura.runtime.recording.entries import Entry, Recording
from caesura.runtime.recording.files import built, write
from caesura.runtime.recording.recorder import Recorder
from caesura.runtime.recording.storage import Store
from caesura.runtime.sdk.agent import Agent
from caesura.scheduler.messages import Sampling
from caesura.simulator.engine import simulate
from caesura.simulator.latency.machines import make_machine
from caesura.simulator.policy import POLICIES
from caesura.simulator.trace import recording
from caesura.simulator.workload.names import make_workload
from caesura.tools.artifacts import ArtifactStore
from caesura.tools.config.caesura_toml import Config
from caesura.tools.people import Pending
from caesura.tools.services import default_artifacts

PICTURES = Path(__file__).parent / "ui"
MOST_BYTES = 200_000
RECORDED, ADDRESSES = "recorded.json", "addresses.json"
LOOK_MS, LOOKS = 400, 30
"""How long a page must stand still to be taken, and how often it is looked at."""
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
ASKED, PER_SECOND = 120, 30.0
Held = tuple[Recording, list[Entry]]

SMALL = ("--num-gpu-blocks-override", "41", "--max-model-len", "1024")
"""A KV cache for about six of the questions."""
CONFIG = Config(tools={"search": {"corpus": "bundled", "results": 1, "result_tokens": 60}})
BUILT_IN = ("calculator", "clock", "search", "render_chart", "ask_user")
WORKLOAD, RATE, SECONDS, MACHINE = "mix", 5.0, 30.0, "gptj-6b-a100-40g"
COMPARED = ("caesura", "preserve")
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
    recorder = Recorder(store, f"caesura-tiny, {ASKED} questions", "sdk", facts, content=True)
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
    (made,) = catalog.recordings(store.path)
    return made, list(catalog.entries(store.path, int(made.id)))


def simulated() -> list[Held]:
    """One workload under two policies."""
    workload = make_workload(WORKLOAD, RATE, SECONDS, seed=1)
    runs = [
        simulate(workload, make_machine(MACHINE), POLICIES[name], records=True) for name in COMPARED
    ]
    return [(Recording.from_public(recording(run, len(run.records))), run.records) for run in runs]


def views(entries: list[Entry]) -> dict[str, str]:
    """The address of each picture, with what is most worth seeing in it."""
    pauses = [entry for entry in entries if entry["kind"] == "pause" and entry["decisions"]]
    dear = max(pauses, key=lambda pause: pause["regret"] or 0.0)
    paused = {pause["request"] for pause in pauses}
    spans = [entry for entry in entries if entry["kind"] == "span"]
    drew = next(one["trace"] for one in spans if one["attributes"].get(names.TOOL_ARTIFACTS))
    run = next(one for one in spans if one["trace"] == drew and one["parent"] is None)
    chat = run["attributes"].get(names.CONVERSATION_ID, run["trace"])
    waits = [entry for entry in entries if entry["kind"] == "wait" and entry["request"] in paused]
    waited = max(waits, key=lambda wait: wait["until"] - wait["since"], default=dear)
    return {
        "overview": "overview?rec=1",
        "timeline": "timeline?rec=1",
        "request": f"timeline?rec=1&sel={waited['request']}",
        "decisions": "decision?rec=1",
        "decision": f"decision/{dear['request']}/{dear['at']}?rec=1",
        "memory": "memory?rec=1",
        "session": f"session/{chat}?rec=1",
        "tools": "tools?rec=1",
        "who": "who?rec=1&wh.by=tool",
        "errors": "errors?rec=1",
        "predictions": "predictions?rec=caesura",
        "compare": "compare?rec=caesura&with=preserve",
    }


async def still(tab: Page) -> bytes:
    """Return a picture of the page once it does not change any more; charts need some frames."""
    before = b""
    for _ in range(LOOKS):
        await tab.wait_for_timeout(LOOK_MS)
        after = await tab.screenshot()
        if after == before:
            return after
        before = after
    raise SystemExit(f"{tab.url} does not come to rest: what moves on it cannot be in a picture")


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
        path = PICTURES / f"{name}-{scheme}.png"
        with Image.open(BytesIO(await still(tab))) as taken:
            # A palette of 128 colours is enough for a page, and makes a third of the bytes.
            taken.convert("RGB").quantize(128, dither=Image.Dither.NONE).save(path, optimize=True)
        size = path.stat().st_size
        print(f"{path.name}: {size // 1000} kB{'' if size <= MOST_BYTES else ', too large'}")
    await context.close()


async def make(folder: Path) -> None:
    """Record, simulate, and write the recordings and the addresses of the pictures."""
    with tempfile.TemporaryDirectory() as name:
        # Nothing of the user's is used or changed, so that the pictures are the same anywhere.
        for variable in ("XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME"):
            os.environ[variable] = str(Path(name, variable.lower()))
        worked = await work(Path(name))
        files = ArtifactStore(default_artifacts())
        write("json", [worked, *simulated()], folder / RECORDED, [files])
        folder.joinpath(ADDRESSES).write_text(json.dumps(views(worked[1]), indent=1))


async def main(folder: Path) -> None:
    """Record unless the folder has recordings, make the page, and take its pictures."""
    made = folder / ADDRESSES
    if not made.is_file():
        await make(folder)
    addresses = json.loads(made.read_text())
    page = folder / "page.html"
    page.write_text("".join(built().standalone([folder.joinpath(RECORDED).read_text()])))
    async with async_playwright() as playwright:
        chromium = shutil.which("chromium")
        browser = await playwright.chromium.launch(executable_path=chromium, args=[*BROWSER])
        for scheme in ("light", "dark"):
            await take(browser, page, addresses, scheme)
        await browser.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep what was recorded there")
    given = parser.parse_args()
    PICTURES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        kept = given.keep or Path(scratch)
        kept.mkdir(parents=True, exist_ok=True)
        asyncio.run(main(kept))
