"""Requests for simple drawings: "Draw a red circle."."""

from __future__ import annotations

import random
from dataclasses import dataclass

from tasks.exchange import Call, Exchange, fill, vary

from .files import picture

COLOURS = (
    "red", "blue", "green", "yellow", "black", "orange", "purple", "pink", "brown", "gray",
    "gold", "navy", "teal", "cyan", "magenta", "olive", "silver", "violet",
)  # fmt: skip
# Alone in the middle of 200 x 200, and beside another one: left, right.
_FORMS = {
    "circle": (
        "<circle cx='100' cy='100' r='80' fill='{c}'/>",
        "<circle cx='50' cy='100' r='40' fill='{c}'/>",
        "<circle cx='150' cy='100' r='40' fill='{c}'/>",
    ),
    "square": (
        "<rect x='20' y='20' width='160' height='160' fill='{c}'/>",
        "<rect x='10' y='60' width='80' height='80' fill='{c}'/>",
        "<rect x='110' y='60' width='80' height='80' fill='{c}'/>",
    ),
    "rectangle": (
        "<rect x='20' y='60' width='160' height='80' fill='{c}'/>",
        "<rect x='10' y='80' width='80' height='40' fill='{c}'/>",
        "<rect x='110' y='80' width='80' height='40' fill='{c}'/>",
    ),
    "triangle": (
        "<polygon points='100,20 180,180 20,180' fill='{c}'/>",
        "<polygon points='50,60 90,140 10,140' fill='{c}'/>",
        "<polygon points='150,60 190,140 110,140' fill='{c}'/>",
    ),
    "ellipse": (
        "<ellipse cx='100' cy='100' rx='80' ry='40' fill='{c}'/>",
        "<ellipse cx='50' cy='100' rx='40' ry='20' fill='{c}'/>",
        "<ellipse cx='150' cy='100' rx='40' ry='20' fill='{c}'/>",
    ),
    "line": (
        "<line x1='20' y1='100' x2='180' y2='100' stroke='{c}' stroke-width='4'/>",
        "<line x1='10' y1='100' x2='90' y2='100' stroke='{c}' stroke-width='4'/>",
        "<line x1='110' y1='100' x2='190' y2='100' stroke='{c}' stroke-width='4'/>",
    ),
}
_ASK = (
    "draw {w}.", "draw {w}.", "draw me {w}.", "can you draw {w}?", "make a drawing of {w}.",
    "draw {w} for me.", "I want {w}. Draw it.", "render {w} as SVG.", "make an SVG of {w}.",
    "draw an SVG with {w}.", "sketch {w}.", "please draw {w}.", "I need a drawing of {w}.",
    "show me {w}.", "make {w}.", "create an SVG of {w}.", "I would like {w}.", "give me {w}.",
    "can you make {w}?", "draw a picture of {w}.", "create {w}.", "render {w}.", "{w}, please.",
)  # fmt: skip


@dataclass(frozen=True)
class Shape:
    """One thing to draw."""

    form: str
    colour: str
    radius: int = 0
    after: bool = False

    @property
    def said(self) -> str:
        """The shape as a user names it, with its article."""
        name = f"{self.colour} {self.form}"
        if self.after:
            name = f"{self.form} in {self.colour}"
        radius = f" with radius {self.radius}" if self.radius else ""
        return ("an " if name[0] in "aeiou" else "a ") + name + radius

    def drawn(self, place: int = 0) -> str:
        """The element; ``place`` is 0 for alone, 1 for left, 2 for right."""
        text = _FORMS[self.form][place].format(c=self.colour)
        return text.replace("r='80'", f"r='{self.radius}'") if self.radius else text


def _shape(rng: random.Random) -> Shape:
    form = rng.choice(("circle", "circle", *_FORMS))
    radius = rng.randrange(5, 100) if form == "circle" and rng.random() < 0.25 else 0
    return Shape(form, rng.choice(COLOURS), radius, after=not radius and rng.random() < 0.12)


def _picture(rng: random.Random, task: str, user: str, shapes: list[Shape]) -> Exchange:
    alone = len(shapes) == 1
    parts = [shape.drawn(0 if alone else place) for place, shape in enumerate(shapes, 1)]
    svg = f"<svg width='200' height='200'>{''.join(parts)}</svg>"
    where, result = picture(rng, 200, 200)
    call = Call("render_svg", {"svg": svg}, result)
    return Exchange(task, user, (f"The picture is at {where}.",), ((call,),), (where,))


def shape(rng: random.Random) -> Exchange:
    """Return a request to draw one shape, or two beside each other."""
    shapes = [_shape(rng)]
    if rng.random() < 0.25:
        shapes = [Shape(s.form, s.colour) for s in (shapes[0], _shape(rng))]
    what = " and ".join(each.said for each in shapes)
    return _picture(rng, "svg", vary(rng, fill(rng, _ASK, w=what)), shapes)


def follow_up(rng: random.Random, before: Exchange) -> Exchange | None:
    """Return "And in blue?" or "And a green square?"."""
    last = before.calls[-1] if before.calls else None
    if last is None or last.name != "render_svg" or before.task == "error":
        return None
    new = _shape(rng)
    one = [form for form in _FORMS if f" {form}" in before.user]
    simple = len(one) == 1 and " and " not in before.user and "radius" not in before.user
    if simple and rng.random() < 0.5:
        same = Shape(one[0], new.colour)
        forms = ("And in {c}?", "Now in {c}.", "The same in {c}.", "And a {c} one?",
            "Make it {c}.", "What about {c}?", "Now {c}, please.")  # fmt: skip
        return _picture(rng, "follow-up", rng.choice(forms).format(c=new.colour), [same])
    text = rng.choice(("And {w}?", "Now {w}.", "And now {w}.")).format(w=new.said)
    return _picture(rng, "follow-up", text, [new])
