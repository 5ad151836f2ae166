"""A game of ALFWorld, played by a script that knows only the results of the tool `environment`.

The player reads the task and the last line, "You can: ...", of each observation. It searches one
place after another and does the task. As the script of a `ScriptedEngine`, the player replaces
only the model: the loop, the tool and its process are the real ones.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

from rich.console import Console
from rich.markup import escape

from caesura.runtime.cli.terminal import shorten
from caesura.runtime.errors import CaesuraError
from caesura.runtime.events import CallFinished, TextDelta, ToolReturned
from caesura.runtime.run.limits import Limits
from caesura.runtime.sdk.agent import Agent
from caesura.runtime.testing import ScriptedEngine
from caesura.runtime.testing.script import Item, calls, say
from caesura.runtime.testing.script import call as call_of
from caesura.scheduler.messages import Message, ToolSpec

PROMPT = "Play one game in the environment to its end."
THING = r"([a-z]+ \d+)"
TASKS = (
    r"(?:put|find) (?P<two>two) (?P<thing>\w+) (?:in|and put them in) (?P<place>\w+)",
    r"put a (?P<treat>clean|hot|cool) (?P<thing>\w+) in (?P<place>\w+)",
    r"(?P<treat>clean|heat|cool) some (?P<thing>\w+) and put it in (?P<place>\w+)",
    r"(?:look at|examine the) (?P<thing>\w+) (?:under|with) the (?P<lamp>\w+)",
    r"put (?:a|some) (?P<thing>\w+) (?:in|on) (?P<place>\w+)",
)
TREATED_AT = {
    "clean": ("clean", "sinkbasin"),
    "hot": ("heat", "microwave"),
    "heat": ("heat", "microwave"),
    "cool": ("cool", "fridge"),
}


@dataclass(frozen=True, slots=True)
class Goal:
    """The task's goal: kinds of things and places; "" for those that the task does not name."""

    thing: str
    place: str = ""
    lamp: str = ""
    verb: str = ""
    verb_place: str = ""


@dataclass(slots=True)
class Memory:
    """The observations and actions so far."""

    goal: Goal | None = None
    can: tuple[str, ...] = ()
    outcome: str = ""
    unseen: list[str] = field(default_factory=list)
    """The places that were not searched yet."""
    places: list[str] = field(default_factory=list)
    where: dict[str, str] = field(default_factory=dict)
    """The places of the things that were seen."""
    at: str = ""
    holding: str = ""
    treated: set[str] = field(default_factory=set)
    delivered: dict[str, str] = field(default_factory=dict)
    """The delivered things and their places."""


def play(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Item:
    """Return the player's next turn; this function is a script of a `ScriptedEngine`."""
    told = str(messages[-1].get("content"))
    if messages[-1]["role"] == "tool" and told.startswith("error:"):
        return say(f"I cannot go on: {told}")
    memory = remember(messages)
    if memory.outcome:
        return say(f"The game is {memory.outcome}.")
    if memory.goal is None:
        return calls(call_of("environment", action="reset"), text="I start a game. ")
    thought, action = choose(memory)
    if not action:
        return say(thought)
    return calls(call_of("environment", action=action), text=f"{thought} ")


def remember(messages: Sequence[Message]) -> Memory:
    """Return the memory of a conversation: all observations since the last game began."""
    memory = Memory()
    for message in messages:
        if message["role"] == "tool":
            text = str(message["content"])
            if "Your task is to:" in text:
                memory = Memory(goal=goal_of(text))
                memory.places = re.findall(rf"an? {THING}", text.partition("Your task")[0])
                memory.unseen = list(memory.places)
            note(memory, text)
    return memory


def goal_of(text: str) -> Goal | None:
    """Return the goal that an observation states, or None if the player does not know it."""
    for pattern in TASKS:
        found = re.search(rf"Your task is to: {pattern}\.", text)
        if found:
            said = {"place": "", "lamp": "", "treat": "", **found.groupdict()}
            verb, verb_place = TREATED_AT.get(said["treat"], ("", ""))
            return Goal(said["thing"], said["place"], said["lamp"], verb, verb_place)
    return None


def note(memory: Memory, text: str) -> None:
    """Add one observation to the memory."""
    observed, _, last = text.rpartition("\n")
    memory.can = tuple(last.removeprefix("You can: ").split(", "))
    memory.outcome = last.removeprefix("Done: ") if last.startswith("Done: ") else ""
    if found := re.search(rf"You arrive at {THING}", observed):
        memory.at = found[1]
        if f"The {memory.at} is closed" not in observed:
            _looked(memory, observed)
    elif re.match(rf"You open the {THING}", observed):
        _looked(memory, observed)
    elif found := re.match(rf"You pick up the {THING} from", observed):
        memory.holding = found[1]
        memory.where.pop(memory.holding, None)
    elif found := re.match(rf"You move the {THING} to the {THING}", observed):
        memory.holding = ""
        memory.where[found[1]] = found[2]
        if memory.goal and _kind(found[2]) == memory.goal.place:
            memory.delivered[found[1]] = found[2]
    elif found := re.match(rf"You (?:clean|heat|cool) the {THING}", observed):
        memory.treated.add(found[1])


def choose(memory: Memory) -> tuple[str, str]:
    """Return a thought and its action; without an action, the player gives up."""
    for thought, action in _options(memory):
        if action in memory.can or action.startswith("go to "):
            return thought, action
    return "I have looked everywhere, and I give up.", ""


def _options(memory: Memory) -> Iterator[tuple[str, str]]:
    """Yield thoughts and actions, the most useful first, whether or not they are possible now."""
    goal = memory.goal or Goal("")
    if memory.holding:
        yield from _with(memory, goal, memory.holding)
    else:
        for thing, place in memory.where.items():
            if _kind(thing) == goal.thing and thing not in memory.delivered:
                yield f"I take the {goal.thing}.", f"take {thing} from {place}"
                yield from _go(memory, place, f"I have seen a {goal.thing} there.")
    if memory.at in memory.unseen:
        yield "It is closed: I look inside.", f"open {memory.at}"
    wanted = goal.lamp if memory.holding and goal.lamp else goal.thing
    for place in memory.unseen:
        if place != memory.at:
            yield f"I look for a {wanted}.", f"go to {place}"


def _with(memory: Memory, goal: Goal, held: str) -> Iterator[tuple[str, str]]:
    """Yield thoughts and actions for the thing in hand."""
    at = memory.at
    if goal.verb and held not in memory.treated:
        yield f"Here I can {goal.verb} the {goal.thing}.", f"{goal.verb} {held} with {at}"
        yield from _go(memory, goal.verb_place, f"To {goal.verb} it I need a {goal.verb_place}.")
    elif goal.lamp:
        for lamp, place in memory.where.items():
            if _kind(lamp) == goal.lamp:
                yield f"I look at it under the {goal.lamp}.", f"use {lamp}"
                yield from _go(memory, place, f"I have seen a {goal.lamp} there.")
    else:
        if _kind(at) == goal.place:
            yield f"Here the {goal.thing} belongs.", f"move {held} to {at}"
            yield f"The {at} has to be open first.", f"open {at}"
        first = next(iter(memory.delivered.values()), goal.place)  # both things of a task go there
        yield from _go(memory, first, f"I bring it to the {goal.place}.")


def _go(memory: Memory, place: str, thought: str) -> Iterator[tuple[str, str]]:
    """Yield the way to a place, or to the first one of a kind, unless the player is there."""
    targets = [each for each in memory.places if place in (each, _kind(each))]
    if targets and memory.at not in targets:
        yield thought, f"go to {targets[0]}"


def _looked(memory: Memory, observed: str) -> None:
    """Add the things in the player's place to the memory."""
    memory.unseen = [place for place in memory.unseen if place != memory.at]
    for thing in re.findall(rf"\ba {THING}", observed.partition("you see")[2]):
        memory.where[thing] = memory.at


def _kind(name: str) -> str:
    return name.partition(" ")[0]


LIMITS = Limits(max_turns=60)
CONTEXT_TOKENS = 100_000


async def play_to_the_end(console: Console) -> None:
    """Play a game, and print each thought, action and observation on a line."""
    console.print(
        "\nA game of ALFWorld, played by a script that reads the tool's results:", style="bold"
    )
    thought, last = "", ""
    engine = ScriptedEngine(play, context_tokens=CONTEXT_TOKENS)
    try:
        agent = Agent(engine, ["environment"], limits=LIMITS)
        async with agent, aclosing(agent.stream(PROMPT)) as events:
            async for event in events:
                match event:
                    case TextDelta(text=text):
                        thought += text
                    case CallFinished(arguments=arguments):
                        _line(
                            console, f"[cyan]{escape(thought.strip())}[/cyan] {escape(arguments)}"
                        )
                        thought = ""
                    case ToolReturned(result=result):
                        last = result.content
                        seen = " ".join(last.rpartition("\n")[0].split())
                        _line(console, f"[dim]{escape(shorten(seen, console.width - 6))}[/dim]")
                    case _:
                        pass
    except CaesuraError as error:
        console.print(f"environment: {error}", style="yellow", markup=False, soft_wrap=True)
        return
    _line(console, f"[bold]{escape(last.rpartition(chr(10))[2])}[/bold]")


def _line(console: Console, markup: str) -> None:
    console.print(f"  {markup}", highlight=False, soft_wrap=True)
