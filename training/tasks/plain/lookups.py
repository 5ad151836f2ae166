"""Questions for clock, weather, price and population: alone, several at once, followed up."""

from __future__ import annotations

import random
from dataclasses import dataclass

from tasks.exchange import Call, Exchange, vary
from tasks.words import OTHER_CITIES, ZONES, city, integer, made_up, price, thing, zoned_city

from .sums import question as sum_question

_SKIES = (
    "sunny", "cloudy", "light rain", "heavy rain", "snow", "fog", "clear sky", "windy",
    "thunderstorm", "overcast", "drizzle", "hail", "strong wind", "partly cloudy", "hot and dry",
    "mist",
)  # fmt: skip
_ABBREVIATIONS = (
    "UTC",
    "GMT",
    "CET",
    "CEST",
    "EST",
    "EDT",
    "PST",
    "JST",
    "EET",
    "IST",
    "MSK",
    "+04",
)
_TEXTS = {
    "weather": (
        "what is the weather in {x}?", "what's the weather like in {x}?",
        "how is the weather in {x}?", "weather in {x}?", "is it raining in {x}?",
        "how warm is it in {x}?", "tell me the weather in {x}.", "what is the temperature in {x}?",
        "do I need an umbrella in {x}?", "what is the weather in {x}?",
        "I am going to {x}. How is the weather there?", "give me the weather for {x}.",
        "what is the weather in {x} today?", "what is the weather in {x} right now?",
        "how is the weather in {x} today?", "what's the weather in {x}?", "is it cold in {x}?",
        "is it sunny in {x}?", "is it warm in {x}?", "does it rain in {x}?", "weather {x}",
        "will I need a coat in {x}?", "show me the weather in {x}.", "how cold is it in {x}?",
        "is it hot in {x}?", "how's the weather in {x}?", "check the weather in {x}.",
        "what is it like outside in {x}?", "what is the forecast for {x}?",
    ),
    "price": (
        "how much does a {x} cost?", "what does a {x} cost?", "what is the price of a {x}?",
        "how much is a {x}?", "price of a {x}?", "what do I pay for a {x}?",
        "tell me the price of a {x}.", "how expensive is a {x}?", "how much does one {x} cost?",
        "what is the price of one {x}?", "I want to buy a {x}. What does it cost?",
        "what's the price of a {x}?", "how much would a {x} cost?", "what does one {x} cost?",
        "look up the price of a {x}.", "how much for a {x}?", "can I have the price of a {x}?",
        "how much money is a {x}?", "what do you charge for a {x}?", "find the price of a {x}.",
    ),
    "population": (
        "how many people live in {x}?", "what is the population of {x}?", "population of {x}?",
        "how big is the population of {x}?", "how many inhabitants does {x} have?",
        "how many live in {x}?", "tell me the population of {x}.", "what's the population of {x}?",
        "how many people are there in {x}?", "how big is {x}?", "look up the population of {x}.",
        "number of inhabitants of {x}?", "what number of people live in {x}?",
        "how many citizens does {x} have?", "find the population of {x}.",
    ),
    "clock": (
        "what time is it in {x}?", "what is the time in {x}?", "what's the time in {x}?",
        "time in {x}?", "tell me the time in {x}.", "how late is it in {x}?",
        "what is the current time in {x}?", "what time is it in {x} now?",
        "what time is it right now in {x}?", "what's the current time in {x}?", "time {x}",
        "what hour is it in {x}?", "give me the time in {x}.", "what time do they have in {x}?",
        "show me the time in {x}.", "do you know the time in {x}?", "local time in {x}?",
    ),
    "date": (
        "what is the date in {x}?", "what day is it in {x}?", "what is today's date in {x}?",
        "which date is it in {x}?", "tell me the date in {x}.", "what's the date in {x}?",
        "which day is it in {x}?", "what day is it today in {x}?",
    ),
    "now": (
        "what time is it?", "what is the time?", "what's the time?", "tell me the time.",
        "what time is it now?", "do you know what time it is?", "how late is it?",
        "what time is it right now?", "what is the current time?", "time, please.",
        "what hour is it?",
        "what's the current time?", "give me the time.", "can you tell me the time?",
    ),
    "today": ("what is the date?", "what is today's date?", "which date is it?", "what day is it?",
        "what's the date?", "tell me the date.", "what's today's date?", "what day is it today?",
        "what is the date today?"),
}  # fmt: skip


@dataclass(frozen=True)
class Lookup:
    """A question, its call, the sentence that answers it and what the sentence must contain."""

    text: str
    call: Call
    answer: str
    value: str
    subject: str


def an(text: str) -> str:
    """Write ``an`` before vowels."""
    for vowel in "aeiou":
        text = text.replace(f" a {vowel}", f" an {vowel}")
    return text


def _said(rng: random.Random, x: str) -> str:
    """Return a city as a user writes it: a well-known one now and then in lower case."""
    return x.lower() if x in (*ZONES, *OTHER_CITIES) and rng.random() < 0.1 else x


def weather(rng: random.Random, x: str = "") -> Lookup:
    """Return a question about the weather."""
    x = x or city(rng)
    sky = rng.choice(_SKIES) if rng.random() < 0.8 else made_up(rng)
    degrees = rng.randrange(-15, 42)
    result = rng.choice((f"{degrees} degrees, {sky}",) * 3 + (f"{sky}, {degrees} C", sky))
    call = Call("weather", {"city": x}, result)
    text = rng.choice(_TEXTS["weather"]).format(x=_said(rng, x))
    return Lookup(text, call, f"The weather in {x} is {result}.", result, x)


def price_of(rng: random.Random, x: str = "") -> Lookup:
    """Return a question about the price of one thing."""
    x = x or thing(rng)[0]
    call = Call("price", {"item": x}, price(rng))
    text = an(rng.choice(_TEXTS["price"]).format(x=x))
    return Lookup(text, call, f"The {x} costs {call.result}.", call.result, x)


def population(rng: random.Random, x: str = "") -> Lookup:
    """Return a question about the number of inhabitants."""
    x = x or city(rng)
    call = Call("population", {"city": x}, str(integer(rng, rng.choice((3, 4, 5, 6, 6, 7, 7, 8)))))
    text = rng.choice(_TEXTS["population"]).format(x=_said(rng, x))
    return Lookup(text, call, f"{call.result} people live in {x}.", call.result, x)


def clock(rng: random.Random, x: str = "") -> Lookup:
    """Return a question about time or date: in a city, in a named zone or just now."""
    roll = rng.random()
    if x:
        where, zone, arguments = x, ZONES[x], {"timezone": ZONES[x]}
    elif roll < 0.65:
        where, zone = zoned_city(rng)
        arguments = {"timezone": zone}
    elif roll < 0.80:
        where = zone = "UTC" if roll < 0.70 else _zone(rng)
        arguments = {"timezone": zone}
    else:
        where, zone, arguments = "UTC", "UTC", {}
    letters = "UTC" if zone == "UTC" else rng.choice(_ABBREVIATIONS)
    day = f"{rng.randrange(2020, 2040)}-{rng.randrange(1, 13):02d}-{rng.randrange(1, 29):02d}"
    hour = f"{rng.randrange(24):02d}:{rng.randrange(60):02d}"
    call = Call("clock", arguments, f"{day} {hour}:{rng.randrange(60):02d} {letters}")
    if rng.random() < 0.8:
        text = rng.choice(_TEXTS["clock" if arguments else "now"]).format(x=_said(rng, where))
        return Lookup(text, call, f"It is {hour} in {where}.", hour, where)
    text = rng.choice(_TEXTS["date" if arguments else "today"]).format(x=_said(rng, where))
    return Lookup(text, call, f"The date in {where} is {day}.", day, where)


def _zone(rng: random.Random) -> str:
    if rng.random() < 0.5:
        return rng.choice(list(ZONES.values()))
    area = rng.choice(("Europe", "Asia", "America", "Africa", "Pacific"))
    return f"{area}/{made_up(rng).capitalize()}"


KINDS = (weather, price_of, population, clock, clock)


def one(rng: random.Random) -> Exchange:
    """Return a question that a single lookup answers."""
    found = rng.choice(KINDS)(rng)
    user = vary(rng, found.text[0].upper() + found.text[1:])
    return Exchange("one", user, (found.answer,), ((found.call,),), (found.value,))


def _arithmetic(rng: random.Random) -> Lookup:
    while True:
        text, call = sum_question(rng)
        if not call.result.startswith("error"):
            answer = f"{call.arguments['expression']} is {call.result}."
            return Lookup(f"what is {text}?", call, answer, call.result, "")


def parallel(rng: random.Random) -> Exchange:
    """Return a question that needs two or three independent calls in the same turn."""
    while True:
        asked = _several(rng, 2 if rng.random() < 0.75 else 3)
        # The same call twice would have one result, not two.
        if len({call.key for call in asked.calls}) == len(asked.calls):
            return asked


def _several(rng: random.Random, count: int) -> Exchange:
    roll = rng.random()
    if roll < 0.45:
        return _same_kind(rng, count)
    found = [_question(rng) for _ in range(count)]
    if roll < 0.75:
        found = [_arithmetic(rng) for _ in range(count)]
    return _joined(rng, found)


def _question(rng: random.Random) -> Lookup:
    """Return a lookup or a sum whose question can stand beside others in one sentence."""
    while True:
        found = rng.choice((*KINDS, _arithmetic, _arithmetic))(rng)
        if found.text.startswith(("what", "how", "is ")) and ". " not in found.text:
            return found


def _joined(rng: random.Random, found: list[Lookup]) -> Exchange:
    parts = [item.text.rstrip("?.") for item in found]
    if rng.random() < 0.15:
        text = " ".join(part[0].upper() + part[1:] + "?" for part in parts)
    else:
        text = ", ".join(parts[:-1]) + rng.choice((" and ", " and ", ", and ")) + parts[-1] + "?"
    return _together(rng, text, found)


def _same_kind(rng: random.Random, count: int) -> Exchange:
    """Ask for one thing in several places: "What is the weather in Paris and in Rome?"."""
    kind = rng.choice(KINDS)
    if kind is clock:
        found = [clock(rng, x) for x in rng.sample(list(ZONES), count)]
        found = [item for item in found if ":" in item.value] or found[:1]
    else:
        found = [kind(rng) for _ in range(count)]
    subjects = [item.subject for item in found]
    small_word = "a " if kind is price_of else rng.choice(("in ", "in ", ""))
    if kind is population:
        small_word = ""
    first = found[0].text.rstrip("?.")
    if not first.endswith(subjects[0]):
        return _joined(rng, found)
    rest = [an(" " + small_word + subject)[1:] for subject in subjects[1:]]
    text = " and ".join((", ".join((first, *rest[:-1])), rest[-1])) if rest else first
    return _together(rng, text + "?", found)


def _together(rng: random.Random, text: str, found: list[Lookup]) -> Exchange:
    return Exchange(
        "parallel" if len(found) > 1 else "one",
        vary(rng, text[0].upper() + text[1:]),
        (" ".join(item.answer for item in found),),
        (tuple(item.call for item in found),),
        tuple(item.value for item in found),
    )


def follow_up(rng: random.Random, before: Exchange) -> Exchange | None:
    """Return "And in Rome?" or the like, where the exchange before was a single lookup."""
    if before.task != "one" or len(before.calls) != 1 or before.calls[0].name == "calculator":
        return None
    name = before.calls[0].name
    if name == "clock":
        if before.values[0].count("-") or not before.calls[0].arguments:
            return None
        while ":" not in (found := clock(rng, zoned_city(rng)[0])).value:
            pass
    else:
        found = {"weather": weather, "price": price_of, "population": population}[name](rng)
    forms = (
        "And a {x}?", "What about a {x}?", "And for a {x}?", "How about a {x}?"
    ) if name == "price" else (
        "And in {x}?", "And {x}?", "What about {x}?", "And how about {x}?", "{x}?",
        "The same for {x}.", "How about {x}?", "What about in {x}?", "and {x}", "Now {x}."
    )  # fmt: skip
    text = an(rng.choice(forms).format(x=found.subject))
    return Exchange("follow-up", text, (found.answer,), ((found.call,),), (found.value,))
