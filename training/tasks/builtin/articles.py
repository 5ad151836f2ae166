"""Questions about the bundled articles: a true question, and the sentence that answers it.

The articles are the ones that the search tool brings along. Nearly every question that a newcomer
puts to them begins with a thing that has an article, so these are learned by name.
"""

from __future__ import annotations

import random
import re
from functools import cache
from pathlib import Path

from tasks.exchange import Call, Exchange, vary

from .searches import query_of

FOLDER = Path(__file__).parents[3] / "src/caesura/tools/search/articles"
_SENTENCE = re.compile(r"(?<=[.!?]) (?=[A-Z])")
MAX_SHOWN_CHARACTERS = 420
# Questions about an article, and a part of the sentence that answers them.
QUESTIONS: tuple[tuple[str, str, str], ...] = (
    ("Eiffel Tower", "who built the Eiffel Tower|when was the Eiffel Tower built", "was built by"),
    ("Eiffel Tower", "how tall is the Eiffel Tower|how high is the Eiffel Tower", "330 metres"),
    ("Eiffel Tower", "what is the Eiffel Tower made of", "wrought iron"),
    ("Pantheon", "who built the Pantheon|when was the Pantheon built", "Hadrian"),
    ("Pantheon", "who is buried in the Pantheon", "Raphael"),
    ("Great Pyramid of Giza", "who was the Great Pyramid built for", "Khufu"),
    ("Great Pyramid of Giza", "how high was the Great Pyramid of Giza", "147 metres"),
    ("Angkor Wat", "where is Angkor Wat|what is Angkor Wat", "in Cambodia is"),
    ("Angkor Wat", "who built Angkor Wat|when was Angkor Wat built", "Suryavarman"),
    ("Blue whale", "what is the largest animal", "largest animal"),
    ("Blue whale", "what does the blue whale eat|what do blue whales eat", "krill"),
    ("Blue whale", "how heavy is a blue whale|how long is a blue whale", "150 tonnes"),
    ("Octopus", "how many arms does an octopus have|how many hearts does an octopus have", "eight"),
    ("Honey bee", "how long does a honey bee live|how long does a worker bee live", "six weeks"),
    ("Honey bee", "how do honey bees tell each other where flowers are", "waggle dance"),
    ("Emperor penguin", "where does the emperor penguin live|how tall is an emperor penguin",
     "lives only in"),
    ("Emperor penguin", "how deep can an emperor penguin dive", "500 metres"),
    ("Axolotl", "what is an axolotl|what is the axolotl", "salamander"),
    ("Axolotl", "where does the axolotl live|where is the axolotl found", "Xochimilco"),
    ("Piano", "who invented the piano|when was the piano invented", "Cristofori"),
    ("Piano", "how many keys does a piano have|how many strings does a piano have", "88 keys"),
    ("Violin", "how many strings does a violin have", "four strings"),
    ("Violin", "who made the best violins|who made violins in Cremona", "Cremona"),
    ("Saxophone", "who invented the saxophone|when was the saxophone invented", "Adolphe Sax"),
    ("Saxophone", "what is a saxophone made of", "made of brass"),
    ("Theremin", "who invented the theremin|when was the theremin invented", "Leon Theremin"),
    ("Theremin", "what is a theremin", "without being touched"),
    ("Sitar", "what is a sitar", "plucked string"),
    ("Printing press", "who invented the printing press|when was the printing press invented",
     "Gutenberg"),
    ("Telephone", "who invented the telephone|when was the telephone invented", "Graham Bell"),
    ("Steam engine", "who invented the steam engine|who built the first steam engine", "Newcomen"),
    ("Steam engine", "who improved the steam engine", "improved it"),
    ("Vaccination", "who invented vaccination|who discovered vaccination", "Jenner"),
    ("Vaccination", "when was smallpox eradicated", "eradicated"),
    ("Transistor", "who invented the transistor|when was the transistor invented", "Bardeen"),
    ("Transistor", "what is a transistor", "a switch"),
    ("Bicycle", "who invented the bicycle|when was the bicycle invented", "Karl Drais"),
    ("Iron", "what is iron", "symbol Fe"),
    ("Iron", "at what temperature does iron melt|when does iron melt", "1538"),
    ("Gold", "what is the symbol of gold|what is gold", "symbol Au"),
    ("Gold", "at what temperature does gold melt|what is the melting point of gold", "1064"),
    ("Copper", "at what temperature does copper melt|when does copper melt", "1085"),
    ("Copper", "which country mines the most copper", "Chile"),
    ("Mercury (element)", "which metal is liquid at room temperature", "only metal"),
    ("Aluminium", "what is aluminium made from", "bauxite"),
    ("Aluminium", "at what temperature does aluminium melt", "660 degrees"),
    ("Tungsten", "which metal has the highest melting point", "highest melting point"),
    ("Tungsten", "what is tungsten used for", "filaments"),
    ("Mercury (planet)", "what is the smallest planet|which planet is nearest to the Sun",
     "smallest planet"),
    ("Venus", "what is the hottest planet|which planet is the hottest", "hottest planet"),
    ("Mars", "how many moons does Mars have|who discovered the moons of Mars", "two small moons"),
    ("Mars", "how long is a year on Mars|how long is a day on Mars", "687 days"),
    ("Mars", "why is Mars red", "red colour"),
    ("Jupiter", "what is the largest planet|which planet is the largest", "and the largest"),
    ("Jupiter", "what is the Great Red Spot", "Great Red Spot"),
    ("Saturn", "what are the rings of Saturn made of|what is Saturn known for", "its rings"),
    ("Saturn", "what is the largest moon of Saturn", "Titan"),
    ("Neptune", "who discovered Neptune|when was Neptune discovered", "Galle"),
    ("Neptune", "how long is a year on Neptune", "165 of ours"),
    ("Nile", "what is the longest river|how long is the Nile"
     "|what is the longest river in the world", "6650 kilometres"),
    ("Nile", "where does the Nile end", "wide delta"),
    ("Amazon", "how long is the Amazon|where does the Amazon rise", "6400 kilometres"),
    ("Danube", "how long is the Danube", "2850 kilometres"),
    ("Danube", "where does the Danube rise", "Black Forest"),
    ("Danube", "which countries does the Danube touch", "ten countries"),
    ("Mekong", "how long is the Mekong|where is the Mekong", "4350 kilometres"),
    ("Mekong", "where does the Mekong rise", "Tibetan Plateau"),
    ("Colorado River", "how long is the Colorado River", "2330 kilometres"),
    ("Colorado River", "how deep is the Grand Canyon|which river cut the Grand Canyon",
     "Grand Canyon"),
    ("Saffron", "what is the most expensive spice", "most expensive"),
    ("Saffron", "where does saffron come from", "comes from Iran"),
    ("Black pepper", "what is black pepper|where does black pepper come from", "Piper nigrum"),
    ("Vanilla", "what is vanilla made from|where does vanilla come from", "climbing orchid"),
    ("Vanilla", "where is vanilla grown|which country grows the most vanilla", "Madagascar"),
    ("Cinnamon", "what is cinnamon", "inner bark"),
    ("Cinnamon", "where does cinnamon come from", "Sri Lanka"),
    ("Chili pepper", "what makes chili peppers hot", "Capsaicin"),
    ("Chili pepper", "what is the Scoville scale", "Scoville"),
    ("Oak", "what is the fruit of the oak", "acorn,"),
    ("Oak", "what is oak wood used for", "Oak wood"),
    ("Giant sequoia", "where does the giant sequoia grow", "grows wild"),
    ("Giant sequoia", "how old does a giant sequoia get|how old can a giant sequoia get",
     "3000 years"),
    ("Giant sequoia", "how tall is General Sherman", "84 metres"),
    ("Ginkgo", "where does the ginkgo come from", "comes from China"),
    ("Baobab", "where does the baobab grow|where do baobabs grow", "Of the eight"),
    ("Rubber tree", "where does the rubber tree come from", "Hevea"),
)  # fmt: skip
_TOPIC = (
    "search for {t}.", "look up {t}.", "find something about {t}.", "find out about {t}.",
    "tell me about {t}.", "what do you know about {t}?", "tell me something about {t}.",
    "what do you find about {t}?", "search: {t}", "give me some facts about {t}.",
    "what can you tell me about {t}?", "use search to find {t}.", "I want to know about {t}.",
)  # fmt: skip


@cache
def articles() -> dict[str, tuple[str, str, list[str]]]:
    """Return by title where an article stands ("Planets > Mars"), its file and its sentences."""
    found = {}
    for path in sorted(FOLDER.glob("*.md")):
        whole, *parts = path.read_text(encoding="utf-8").split("\n## ")
        for part in parts:
            title, _, text = part.partition("\n")
            heading = f"{whole.strip().removeprefix('# ')} > {title}"
            found[title] = (heading, path.name, _SENTENCE.split(text.strip()))
    return found


def sentence_of(title: str, part: str) -> str:
    """Return the sentence of an article that holds the text ``part``."""
    return next(text for text in articles()[title][2] if part in text)


def _shown(rng: random.Random, place: int, title: str, wanted: str | None) -> str:
    """Return an article as the search tool shows it: some sentences around the wanted one."""
    heading, name, sentences = articles()[title]
    first = sentences.index(wanted) if wanted else 0
    start = rng.choice((0, 0, first)) if rng.random() < 0.8 else rng.randrange(first + 1)
    most = rng.choice((200, 300, MAX_SHOWN_CHARACTERS))
    end = first + 1
    while end < len(sentences) and len(" ".join(sentences[start : end + 1])) <= most:
        end += 1
    if len(" ".join(sentences[start:end])) > MAX_SHOWN_CHARACTERS:
        start = first
    text = " ".join(sentences[start:end])
    if end < len(sentences):
        words = sentences[end].split()
        text = " ".join((text, *words[: rng.randrange(len(words))], "..."))
    return f"[{place}] {heading} ({name})\n{'... ' if start else ''}{text}"


def _results(rng: random.Random, title: str, wanted: str | None) -> str:
    others = rng.sample([each for each in articles() if each != title], rng.choice((0, 0, 1, 2)))
    titles = [title, *others]
    if rng.random() < 0.12:
        rng.shuffle(titles)
    return "\n\n".join(
        _shown(rng, place, each, wanted if each == title else None)
        for place, each in enumerate(titles, 1)
    )


def article(rng: random.Random) -> Exchange:
    """Return a question about one of the bundled articles."""
    if rng.random() < 0.3:
        title = rng.choice(list(articles()))
        bare = title.partition(" (")[0]
        text = bare if bare[0:2] == bare[0:2].upper() else bare[0].lower() + bare[1:]
        text = bare if title in _PROPER else text
        counted = not articles()[title][0].startswith(("Metals", "Spices", "Planets"))
        the = "the " if counted and title not in _BARE and rng.random() < 0.6 else ""
        question = rng.choice(_TOPIC).format(t=the + text)
        wanted = articles()[title][2][0]
        query = query_of(text)
    else:
        title, forms, part = rng.choice(QUESTIONS)
        question = rng.choice(forms.split("|")) + "?"
        wanted = sentence_of(title, part)
        query = query_of(question)
    call = Call("search", {"query": query}, _results(rng, title, wanted))
    user = vary(rng, question[0].upper() + question[1:])
    return Exchange("articles", user, (wanted,), ((call,),), (wanted,))


_BARE = frozenset(("Angkor Wat", "Vaccination"))
_PROPER = frozenset(
    (
        "Eiffel Tower", "Pantheon", "Great Pyramid of Giza", "Angkor Wat", "Mercury (planet)",
        "Venus", "Mars", "Jupiter", "Saturn", "Neptune", "Nile", "Amazon", "Danube", "Mekong",
        "Colorado River",
    )
)  # fmt: skip
