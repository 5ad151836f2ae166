"""Questions that one calculator call answers: bare expressions and word problems."""

from __future__ import annotations

import random
from collections.abc import Callable

from tasks.arithmetic import expression, spell
from tasks.exchange import Call, Exchange, compute, exact, fill, plain, vary
from tasks.words import CONTAINERS, integer, person, small, thing

ASK = (
    "what is {e}?", "what is {e}?", "what's {e}?", "how much is {e}?", "calculate {e}",
    "compute {e}.", "work out {e}.", "evaluate {e}", "{e}", "{e} = ?", "{e}=",
    "tell me what {e} is.", "solve {e}.", "use the calculator to compute {e}.",
    "what do you get for {e}?", "I need the value of {e}.", "can you calculate {e}?",
    "can you tell me what {e} is?", "give me the result of {e}.", "please compute {e}",
    "what does {e} equal?", "what is the result of {e}?", "how much is {e}", "what do {e} make?",
    "find {e}.", "can you work out {e}?", "what would {e} be?", "result of {e}?", "{e}?",
    "I want to know what {e} is.", "can you compute {e} for me?", "do the maths: {e}",
    "calculate {e} for me.", "what number is {e}?", "{e} equals?", "help me calculate {e}.",
)  # fmt: skip


def sentence(call: Call, text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return answer and expected values: ``text`` with the result filled in, or the error."""
    if call.result.startswith("error"):
        message = call.result.removeprefix("error").lstrip(": ")
        return (f"The {call.name} tool reported an error: {message}.",), (message,)
    return (text.format(r=call.result),), (call.result,)


def question(rng: random.Random) -> tuple[str, Call]:
    """Return an arithmetic question without its verb and the call that answers it."""
    roll = rng.random()
    if roll < 0.05:
        percent, base = rng.randrange(1, 100), integer(rng, rng.choice((2, 3, 4)))
        sign = rng.choice(("%", " percent"))
        return f"{percent}{sign} of {base}", compute(rng, f"{percent}/100*{base}")
    if roll < 0.18:
        return _power(rng)
    if roll < 0.25:
        a, b = integer(rng), integer(rng)
        word, sign = rng.choice(
            (("the sum of", "+"), ("the product of", "*"), ("the difference between", "-"))
        )
        return f"{word} {a} and {b}", compute(rng, f"{a}{sign}{b}")
    tokens = expression(rng)
    return spell(rng, tokens), compute(rng, "".join(tokens))


def _power(rng: random.Random) -> tuple[str, Call]:
    """Return a square, a root, a half or the like, and the call that answers it."""
    base = integer(rng, rng.choice((1, 2, 3)))
    big = integer(rng)
    text, expression = rng.choice(
        (
            (f"the square of {base}", f"{base}**2"),
            (f"{base} squared", f"{base}**2"),
            (f"{base} cubed", f"{base}**3"),
            (f"the square root of {base * base}", f"{base * base}**0.5"),
            (f"the square root of {big}", f"{big}**0.5"),
            (f"half of {big}", f"{big}/2"),
            (f"twice {big}", f"{big}*2"),
            (f"a third of {big}", f"{big}/3"),
            (f"a quarter of {big}", f"{big}/4"),
            (f"double {big}", f"{big}*2"),
            (f"three times {big}", f"{big}*3"),
            (f"one third of {big}", f"{big}/3"),
            (f"a fifth of {big}", f"{big}/5"),
            (f"a tenth of {big}", f"{big}/10"),
        )
    )
    return text, compute(rng, expression)


def direct(rng: random.Random) -> Exchange:
    """Return a question that names its expression."""
    text, call = question(rng)
    answer, values = sentence(call, "The answer is {r}.")
    return Exchange("one", vary(rng, fill(rng, ASK, e=text)), answer, ((call,),), values)


Problem = tuple[tuple[str, ...], str, str]


def _containers(rng: random.Random) -> Problem:
    (_, inside), (_, outer) = thing(rng), rng.choice(list(CONTAINERS.items()))
    a, b = small(rng), small(rng)
    words = (
        f"I have {a} {outer} of {b} {inside}, how many {inside}?",
        f"I have {a} {outer} of {b} {inside}. How many {inside} do I have?",
        f"how many {inside} are in {a} {outer} of {b} {inside}?",
        f"how many {inside} are there in {a} {outer} of {b}?",
        f"there are {a} {outer} with {b} {inside} each. How many {inside} are there?",
        f"{a} {outer} hold {b} {inside} each, how many {inside} is that?",
        f"{a} {outer} with {b} {inside} in each: how many {inside}?",
        f"how many {inside} do {a} {outer} of {b} {inside} hold?",
        f"if I have {a} {outer} of {b} {inside}, how many {inside} do I have?",
        f"we have {a} {outer} with {b} {inside} each. How many {inside} in total?",
        f"I bought {a} {outer} of {b} {inside}. How many {inside} is that?",
        f"each of {a} {outer} holds {b} {inside}. How many {inside} in all?",
        f"what is the number of {inside} in {a} {outer} of {b}?",
    )
    return words, f"{a}*{b}", f"There are {{r}} {inside}."


def _gain(rng: random.Random) -> Problem:
    (_, things), who, a, b = thing(rng), person(rng), small(rng), small(rng)
    words = (
        f"I have {a} {things} and buy {b} more. How many {things} do I have?",
        f"{who} has {a} {things} and gets {b} more, how many {things} is that?",
        f"{who} had {a} {things} and found {b} more. How many {things} now?",
        f"{a} {things} and another {b} {things}: how many {things}?",
        f"there are {a} red {things} and {b} blue {things}. How many {things} are there?",
        f"if I have {a} {things} and get {b} more, how many {things} do I have?",
        f"{who} has {a} {things}, and I have {b}. How many {things} do we have together?",
        f"I had {a} {things} and bought {b} more. How many {things} do I have now?",
    )
    return words, f"{a}+{b}", f"There are {{r}} {things}."


def _loss(rng: random.Random) -> Problem:
    (_, things), who = thing(rng), person(rng)
    b, a = sorted((small(rng), small(rng)))
    words = (
        f"I have {a} {things} and give away {b}. How many {things} are left?",
        f"{who} has {a} {things} and loses {b}, how many {things} are left?",
        f"{who} had {a} {things} and sold {b} of them. How many {things} are left?",
        f"of {a} {things}, {b} are broken. How many {things} are left?",
        f"there were {a} {things} and {b} were eaten, how many {things} remain?",
        f"I had {a} {things} and lost {b}. How many {things} do I have left?",
        f"if {who} gives away {b} of {a} {things}, how many {things} are left?",
        f"I have {a} {things} and eat {b}. How many are left?",
    )
    return words, f"{a}-{b}", f"There are {{r}} {things} left."


def _share(rng: random.Random) -> Problem:
    (_, things), b = thing(rng), integer(rng, rng.choice((1, 1, 2)), low=2)
    a = b * small(rng) if rng.random() < 0.8 else small(rng)
    people = rng.choice(("friends", "people", "children", "teams", "players"))
    words = (
        f"{b} {people} share {a} {things}. How many {things} does each get?",
        f"share {a} {things} among {b} {people}. How many each?",
        f"if {a} {things} are divided among {b} {people}, how many {things} does each one get?",
        f"I split {a} {things} between {b} {people}, how many does each get?",
        f"how many {things} does each of {b} {people} get from {a} {things}?",
        f"divide {a} {things} between {b} {people}. How many each?",
    )
    return words, f"{a}/{b}", f"Each gets {{r}} {things}."


def _cost(rng: random.Random) -> Problem:
    (single, things), a, b = thing(rng), small(rng), small(rng)
    words = (
        f"one {single} costs {b}. How much do {a} {things} cost?",
        f"I buy {a} {things} at {b} each. How much do I pay?",
        f"{a} {things} at {b} each, what do I pay?",
        f"what do {a} {things} cost if one costs {b}?",
        f"if one {single} costs {b}, how much do {a} {things} cost?",
        f"one {single} costs {b} dollars. What do I pay for {a} {things}?",
        f"I buy {a} {things} for {b} each. What is the total?",
    )
    return words, f"{a}*{b}", "That costs {r}."


def _travel(rng: random.Random) -> Problem:
    a, b = integer(rng, rng.choice((2, 3))), integer(rng, rng.choice((1, 1, 2)), low=2)
    what = rng.choice(("train", "car", "bus", "plane", "ship"))
    words = (
        f"a {what} goes {a} km an hour. How far does it go in {b} hours?",
        f"how far does a {what} get in {b} hours at {a} km an hour?",
        f"a {what} travels at {a} km/h for {b} hours, how far does it go?",
        f"if a {what} goes {a} km per hour, how far does it go in {b} hours?",
        f"how far can I drive in {b} hours at {a} km per hour?",
    )
    return words, f"{a}*{b}", "It goes {r} km."


def _area(rng: random.Random) -> Problem:
    a, b = small(rng), small(rng)
    what = rng.choice(("garden", "room", "field", "wall", "floor"))
    words = (
        f"a {what} is {a} metres long and {b} metres wide. What is its area?",
        f"what is the area of a {what} of {a} by {b} metres?",
        f"how large is a {what} of {a} by {b} metres?",
    )
    return words, f"{a}*{b}", "The area is {r} square metres."


def _time(rng: random.Random) -> Problem:
    unit, smaller, factor = rng.choice(
        (("hours", "minutes", 60), ("minutes", "seconds", 60), ("days", "hours", 24),
         ("weeks", "days", 7), ("years", "months", 12), ("days", "hours", 24),
         ("kilometres", "metres", 1000), ("km", "metres", 1000), ("kg", "grams", 1000),
         ("metres", "centimetres", 100), ("litres", "millilitres", 1000),
         ("dollars", "cents", 100), ("hours", "seconds", 3600))
    )  # fmt: skip
    a = small(rng)
    words = (
        f"how many {smaller} do {a} {unit} have?",
        f"what is {a} {unit} in {smaller}?",
        f"{a} {unit} in {smaller}?",
        f"how many {smaller} is {a} {unit}?",
        f"turn {a} {unit} into {smaller}.",
        f"how many {smaller} are {a} {unit}?",
        f"how many {smaller} are there in {a} {unit}?",
        f"convert {a} {unit} to {smaller}.",
    )
    return words, f"{a}*{factor}", f"That is {{r}} {smaller}."


PROBLEMS: tuple[Callable[[random.Random], Problem], ...] = (
    _containers, _containers, _containers, _gain, _loss, _share, _cost, _travel, _area, _time,
)  # fmt: skip


def problem(rng: random.Random) -> Exchange:
    """Return a word problem."""
    words, expression, text = rng.choice(PROBLEMS)(rng)
    call = exact(expression)
    answer, values = sentence(call, text)
    return Exchange("one", vary(rng, fill(rng, words)), answer, ((call,),), values)


def follow_up(rng: random.Random, before: Exchange) -> Exchange | None:
    """Return a question that goes on with the number of the exchange before, where it has one."""
    calls = before.calls
    if not calls or calls[-1].name != "calculator" or not plain(calls[-1]):
        return None
    last, n = calls[-1].result, integer(rng, rng.choice((1, 1, 2, 3)), low=2)
    text, expression = rng.choice(
        (
            (f"And times {n}?", f"{last}*{n}"),
            (f"Multiply that by {n}.", f"{last}*{n}"),
            (f"Now add {n}.", f"{last}+{n}"),
            (f"And plus {n}?", f"{last}+{n}"),
            (f"Subtract {n} from that.", f"{last}-{n}"),
            (f"And minus {n}?", f"{last}-{n}"),
            (f"Divide that by {n}.", f"{last}/{n}"),
            (f"And divided by {n}?", f"{last}/{n}"),
            (f"Add {n} to that.", f"{last}+{n}"),
            (f"Now times {n}.", f"{last}*{n}"),
            (f"What about times {n}?", f"{last}*{n}"),
            ("Double it.", f"{last}*2"),
            ("And half of that?", f"{last}/2"),
        )
    )
    call = compute(rng, expression)
    answer, values = sentence(call, "The answer is {r}.")
    return Exchange("follow-up", vary(rng, text), answer, ((call,),), values)
