"""Games in a text world: starting one, taking the actions that are asked for, telling the end."""

from __future__ import annotations

import random

from tasks.exchange import Call, Exchange, fill, vary
from tasks.words import made_up

_PLACES = (
    "desk", "drawer", "shelf", "cabinet", "bed", "sofa", "fridge", "microwave", "sinkbasin",
    "countertop", "diningtable", "garbagecan", "safe", "armchair", "dresser", "toilet",
    "coffeetable", "stoveburner", "sidetable", "bathtubbasin", "toaster", "handtowelholder",
)  # fmt: skip
_OPENED = ("drawer", "cabinet", "fridge", "microwave", "safe")
_ITEMS = (
    "mug", "book", "vase", "pillow", "apple", "cup", "plate", "pen", "pencil", "knife", "spoon",
    "keychain", "cellphone", "laptop", "newspaper", "bowl", "candle", "soapbar", "egg", "tomato",
    "statue", "watch", "box", "creditcard", "alarmclock", "cloth", "potato", "bread", "pan",
)  # fmt: skip
_RESET = (
    "start a new game.", "start a game.", "start a new game in the environment.",
    "begin a new game.", "reset the environment.", "start a game and tell me the task.",
    "what is the task of the game? Start one.", "start the game. What is the task?",
    "start a new game and tell me what to do.", "reset the game.", "new game", "new game, please.",
    "I want to start a game.", "let us start a new game.", "start over.", "begin the game.",
    "start another game.", "what is my task? Start a game.", "start the text game.",
    "open a new game.", "give me a new game.", "set up a game and tell me the task.",
)  # fmt: skip
_ACT = (
    "{a}.", "{a}.", "now {a}.", "{a} in the game.", "in the game, {a}.", "please {a}.",
    "take the action '{a}'.", "do '{a}' in the environment.", "next: {a}.", "then {a}.",
    "try to {a}.", "I {a}.", "{a}", "action: {a}", "do this in the game: {a}.",
)  # fmt: skip
_FIRST = (
    "start a new game and {a}.", "start a game and {a}.", "start a new game, then {a}.",
    "begin a game and {a}.", "reset the environment and {a}.", "new game: {a}.",
    "start the game, then {a}.", "reset the game and {a}.", "start over and {a}.",
)  # fmt: skip
_PLAY = (
    "play a game.", "play one game.", "play a game and win it.", "play the game for me.",
    "play a new game to the end.", "start a game and solve its task.", "play.",
    "can you play a game?", "win a game.", "solve a game.", "play the game to the end.",
    "play the text game.", "play a round.", "try to win a game.", "play a game to the end.",
)  # fmt: skip


def _numbered(rng: random.Random, names: tuple[str, ...]) -> str:
    name = made_up(rng) if rng.random() < 0.15 else rng.choice(names)
    return f"{name} {rng.choice((1, 1, 1, 2, 2, 3, 4, 5, 12))}"


def _listed(items: list[str]) -> str:
    """Write a list of things as the games do."""
    named = [f"a {item}" for item in items]
    if len(named) < 2:
        return named[0] if named else "nothing"
    return f"{', '.join(named[:-1])}, and {named[-1]}"


class World:
    """A room with places and things, as far as a few actions show it."""

    def __init__(self, rng: random.Random) -> None:
        count = rng.choice((3, 4, 4, 5, 6, 8)) if rng.random() < 0.85 else rng.randrange(9, 16)
        self.rng = rng
        self.places = list({_numbered(rng, _PLACES): None for _ in range(count)})
        self.target = rng.choice(self.places)
        self.items = list({_numbered(rng, _ITEMS): None for _ in range(rng.choice((1, 1, 2, 3)))})
        self.item = rng.choice(self.items)

    def can(self, first: list[str]) -> str:
        """The line that tells which actions are possible, in any order."""
        more = [f"go to {place}" for place in self.places]
        actions = list(dict.fromkeys([*first, *more, "inventory", "look"]))
        if self.rng.random() < 0.3:
            self.rng.shuffle(actions)
        rest = f", and {self.rng.randrange(2, 30)} more" if self.rng.random() < 0.06 else ""
        return f"You can: {', '.join(actions)}{rest}"

    def start(self, task: str) -> str:
        """What a new game says."""
        lead = self.rng.choice(("", "", "-= Welcome to TextWorld, ALFRED! =-\n\n"))
        gap = self.rng.choice(("\n\n", "\n"))
        room = "You are in the middle of a room. Looking quickly around you, you see"
        text = f"{lead}{room} {_listed(self.places)}.{gap}Your task is to: {task}."
        return f"{text}\n{self.can([])}"

    def action(self) -> tuple[str, str, list[str]]:
        """An action, what it shows, and what is possible then."""
        rng, target, item = self.rng, self.target, self.item
        roll = rng.random()
        if roll < 0.55:
            taken = [f"take {each} from {target}" for each in self.items]
            if target.split()[0] in _OPENED and rng.random() < 0.5:
                closed = f"You arrive at {target}. The {target} is closed."
                return f"go to {target}", closed, [f"open {target}"]
            on = f"You arrive at {target}. On the {target}, you see {_listed(self.items)}."
            return f"go to {target}", on, taken
        if roll < 0.7:
            inside = _listed(self.items) if rng.random() < 0.6 else "nothing"
            seen = f"You open the {target}. The {target} is open. In it, you see {inside}."
            return f"open {target}", seen, [f"close {target}"]
        if roll < 0.85:
            got = f"You pick up the {item} from the {target}."
            return f"take {item} from {target}", got, [f"move {item} to {target}"]
        if roll < 0.92:
            moved = f"You move the {item} to the {target}."
            return f"move {item} to {target}", moved, [f"take {item} from {target}"]
        if roll < 0.96:
            return "look", f"You are facing the {target}. Next to it, you see nothing.", []
        carried = f": a {item}" if rng.random() < 0.5 else " nothing"
        return "inventory", f"You are carrying{carried}.", []


def _task(world: World) -> str:
    """Return the task of a game as the games put it."""
    item, place = world.item.split()[0], world.target.split()[0]
    return world.rng.choice(
        (f"put a {item} in {place}", f"put some {item} on {place}", f"find two {item} and put them"
         f" in {place}", f"clean some {item} and put it in {place}", f"look at {item} under the"
         f" desklamp", f"put a hot {item} in {place}", f"cool some {item} and put it in {place}",
         f"go to the {place}", f"examine the {item} with the desklamp")
    )  # fmt: skip


def _step(world: World, action: str, seen: str, then: list[str]) -> tuple[Call, str, str]:
    """Return the call of an action, the sentences that answer it, and their value."""
    roll = world.rng.random()
    if roll < 0.07:
        seen = "Nothing happens."
    if 0.07 < roll < 0.22:
        end = world.rng.choice(("won", "won", "won", "lost"))
        call = Call("environment", {"action": action}, f"{seen}\nDone: {end}")
        return call, f"{seen} The game is {end}.", f"The game is {end}"
    result = f"{seen}\n{world.can(then)}"
    return Call("environment", {"action": action}, result), seen, seen


def _reset(world: World, task: str) -> Call:
    return Call("environment", {"action": "reset"}, world.start(task))


def start(rng: random.Random) -> Exchange:
    """Return the start of a game; the answer tells its task."""
    world = World(rng)
    task = _task(world)
    user = vary(rng, fill(rng, _RESET))
    call = _reset(world, task)
    return Exchange("environment", user, (f"The task is to {task}.",), ((call,),), (task,))


def act(rng: random.Random, world: World | None = None, task: str = "environment") -> Exchange:
    """Return one action that the user asks for; the answer tells what it showed."""
    world = world or World(rng)
    action, seen, then = world.action()
    call, answer, value = _step(world, action, seen, then)
    user = fill(rng, _ACT, a=action)
    return Exchange(task, user, (answer,), ((call,),), (value,))


def begin(rng: random.Random) -> Exchange:
    """Return a game that starts with one action."""
    world = World(rng)
    action, seen, then = world.action()
    first = _reset(world, _task(world))
    call, answer, value = _step(world, action, seen, then)
    user = vary(rng, fill(rng, _FIRST, a=action))
    return Exchange("environment", user, (answer,), ((first,), (call,)), (value,))


def play(rng: random.Random) -> Exchange:
    """Return a short game that the model plays alone: what the task names, by way of its place.

    A task that takes more than that is not solved: the model goes to the place and says so.
    """
    world = World(rng)
    place, item = world.target, world.item
    world.places = [p for p in world.places if p == place or p.split()[0] != place.split()[0]]
    seen = f"You arrive at {place}. On the {place}, you see {_listed(world.items)}."
    steps, then = [(f"go to {place}", seen)], [f"take {each} from {place}" for each in world.items]
    roll, end = rng.random(), f"Done: {rng.choice(('won', 'won', 'lost'))}"
    if roll < 0.35:
        task = f"go to {place}"
    elif roll < 0.75:
        task = f"take {item} from {place}"
        steps.append((task, f"You pick up the {item} from the {place}."))
    else:
        task = f"put {rng.choice(('a', 'some'))} {made_up(rng)} {rng.choice(('in', 'on'))} "
        task, end = task + place.split()[0], world.can(then)
    calls = [_reset(world, task)]
    for number, (action, text) in enumerate(steps, 1):
        last = end if number == len(steps) else world.can(then)
        calls.append(Call("environment", {"action": action}, f"{text}\n{last}"))
    answer = "The game is " + (end[6:] if end.startswith("Done") else "not over")
    called = tuple((call,) for call in calls)
    return Exchange("environment", vary(rng, fill(rng, _PLAY)), (answer + ".",), called, (answer,))


def environment(rng: random.Random) -> Exchange:
    """Return something to do in a text world."""
    return rng.choice((start, act, begin, play))(rng)


def follow_up(rng: random.Random, before: Exchange) -> Exchange | None:
    """Return the next action of a game that has not ended."""
    calls = before.calls
    if before.task == "error" or not calls or calls[-1].name != "environment":
        return None
    if "Done: " in calls[-1].result:
        return None
    return act(rng, task="follow-up")
