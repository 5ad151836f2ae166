"""render_chart and render_svg as a model calls them: real processes, real pictures."""

import asyncio
import base64
import json
import re
import struct
import zlib

import pytest
from hypothesis import HealthCheck, given, settings

from caesura.tools.picture.markup import DrawingError
from caesura.tools.services import SetupError
from caesura.tools.worker import WorkerFailed, WorkerPool
from tests.tools.picture.strategies import drawable, svgs

BARS = {"data": {"values": [{"month": "Jan", "sales": 3}, {"month": "Feb", "sales": 5}]}}
SAVED = re.compile(r"Saved as /artifacts/([0-9a-f]{24}\.png): PNG picture, (\d+) x (\d+)\.")


def pixels(data: bytes) -> list[bytes]:
    """The rows of an 8-bit RGBA PNG, four bytes a pixel."""
    width, height, depth, colours = struct.unpack_from(">IIBB", data, 16)
    assert (depth, colours) == (8, 6)
    packed, at = b"", 8
    while at < len(data):
        length, kind = struct.unpack_from(">I4s", data, at)
        packed += data[at + 8 : at + 8 + length] if kind == b"IDAT" else b""
        at += 12 + length
    raw = zlib.decompress(packed)
    rows, before, stride = [], bytes(4 * width), 4 * width
    for number in range(height):
        kind, line = (
            raw[number * (stride + 1)],
            bytearray(raw[number * (stride + 1) + 1 :][:stride]),
        )
        for index in range(stride):
            left, up = line[index - 4] if index > 3 else 0, before[index]
            corner = before[index - 4] if index > 3 else 0
            near = min((left, up, corner), key=lambda each: abs(left + up - corner - each))
            line[index] = (line[index] + (0, left, up, (left + up) // 2, near)[kind]) % 256
        before = bytes(line)
        rows.append(before)
    return rows


def saved(result) -> bytes:
    assert result.error is None, result.content
    name, width, height = SAVED.fullmatch(result.content).groups()
    (artifact,) = result.artifacts
    assert artifact.name == name
    data = artifact.path.read_bytes()
    assert struct.unpack_from(">II", data, 16) == (int(width), int(height))
    return data


async def test_a_chart(using):
    call = await using("render_chart")
    data = saved(await call(spec=BARS | {"mark": "bar", "title": "Sales"}))
    assert struct.unpack_from(">II", data, 16) == (640, 400)
    assert data == saved(await call(spec=json.dumps(BARS | {"mark": "bar", "title": "Sales"})))
    assert data != saved(await call(spec=BARS | {"mark": "bar", "title": "Costs"}))


async def test_the_bars_stand_in_the_picture(using):
    call = await using("render_chart")
    red = {"type": "bar", "color": "#ff0000"}
    rows = pixels(saved(await call(spec=BARS | {"mark": red, "width": 200, "height": 120})))
    counts = [row.count(b"\xff\x00\x00\xff") for row in rows]
    assert max(counts) > 60, "both bars at the bottom"
    assert 0 < min(count for count in counts if count) < 0.7 * max(counts), "one of them at the top"


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ({"data": {"url": "file:///etc/passwd"}, "mark": "bar"}, "must not fetch"),
        (BARS | {"mark": "bar", "encoding": {"x": {"field": "year"}}}, "no column 'year'"),
        (BARS | {"mark": "bar", "transform": [{"calculate": "1 +* 2", "as": "a"}]}, "Unexpected"),
        (BARS | {"mark": "bar", "transform": [{"filter": "fetch('x')"}]}, "Unrecognized function"),
        ("no JSON", "'spec'"),
        ([], "'spec'"),
    ],
)
async def test_charts_that_cannot_be(using, spec, told):
    result = await (await using("render_chart"))(spec=spec)
    assert result.error
    assert told in result.content
    assert "\n" not in result.content
    assert "esm" not in result.content, "no stack of the library's"


async def test_a_chart_that_takes_too_long_is_stopped(using):
    call = await using("render_chart", timeout_seconds=3)
    backtracks = f"test(regexp('^(x+)+$'), '{'x' * 60}!')"  # 2^60 tries, and next to no memory
    endless = {"calculate": backtracks, "as": "a"}
    result = await call(spec=BARS | {"mark": "bar", "transform": [endless]})
    assert result.error == "timeout"


async def test_an_svg(using):
    call = await using("render_svg")
    drawing = "<svg width='40' height='30'><rect width='20' height='30' fill='#00f'/></svg>"
    rows = pixels(saved(await call(svg=drawing)))
    assert len(rows) == 30
    assert rows[7][:4] == b"\x00\x00\xff\xff"
    assert rows[7][-4:] == bytes(4), "where nothing is drawn it is transparent"


@pytest.mark.parametrize("family", ["", "font-family='No Such Font'", "style='font-family: Nix'"])
async def test_text_is_drawn(using, family):
    call = await using("render_svg")
    with_text = saved(await call(svg=f"<svg><text y='90' font-size='80' {family}>abc</text></svg>"))
    assert sum(row.count(b"\x00\x00\x00\xff") for row in pixels(with_text)) > 100


async def test_a_huge_svg_is_scaled_down(using):
    call = await using("render_svg", max_side=100)
    rows = pixels(saved(await call(svg="<svg width='50000' height='50000'><rect width='25000' "
                                       "height='50000'/></svg>")))  # fmt: skip
    assert (len(rows), len(rows[0])) == (100, 400)
    assert rows[50][4 * 40 + 3] == 255
    assert rows[50][4 * 60 + 3] == 0


async def test_a_file_is_never_shown(using, tmp_path):
    call = await using("render_svg")
    secret = tmp_path / "secret.png"
    red = base64.b64decode(
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGP4z8DwHwAFAAH/iZk9HQAAAABJRU5ErkJggg=="
    )
    secret.write_bytes(red)
    inside = base64.b64encode(red).decode()
    for href in (str(secret), secret.as_uri(), "secret.png"):
        result = await call(svg=f"<svg><image href='{href}' width='200' height='200'/></svg>")
        assert "must not refer" in result.content
    given = f"<svg><image href='data:image/png;base64,{inside}' width='200' height='200'/></svg>"
    assert pixels(saved(await call(svg=given)))[100][400:404] == b"\xff\x00\x00\xff"


# A filter that is worked out for ever, and copies of copies of copies.
TURBULENCE = (
    '<svg width="2000" height="2000"><filter id="f"><feTurbulence numOctaves="999999999"/></filter>'
    '<rect width="2000" height="2000" filter="url(#f)"/></svg>'
)
COPIES = "".join(
    [
        '<svg><g id="g0"><rect width="5" height="5"/></g>',
        *(f'<g id="g{n}">' + f'<use href="#g{n - 1}"/>' * 10 + "</g>" for n in range(1, 10)),
        "</svg>",
    ]
)


@pytest.mark.parametrize("svg", [TURBULENCE, COPIES], ids=["turbulence", "copies"])
async def test_an_svg_that_hangs_or_crashes_is_an_error(using, svg):
    call = await using("render_svg", timeout_seconds=3)
    result = await call(svg=svg)
    assert result.error in ("timeout", "failed")
    saved(await call(svg="<svg/>"))


def bomb(side):
    """A PNG of two colours that is small until it is unpacked."""

    def chunk(kind, content):
        return (
            struct.pack(">I4s", len(content), kind)
            + content
            + struct.pack(">I", zlib.crc32(kind + content))
        )

    head = struct.pack(">IIBBBBB", side, side, 1, 0, 0, 0, 0)
    body = zlib.compress(bytes(side * (1 + (side + 7) // 8)))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


async def test_memory_is_bounded(using):
    call = await using("render_svg", timeout_seconds=60)
    image = base64.b64encode(bomb(18_000)).decode()
    result = await call(
        svg=f"<svg><image width='9' height='9' href='data:image/png;base64,{image}'/></svg>"
    )
    assert result.error == "failed"
    assert "too much memory" in result.content
    saved(await call(svg="<svg/>"))


async def test_calls_at_the_same_time(using):
    call = await using("render_svg", workers=2)
    drawings = [f"<svg width='{side}' height='9'/>" for side in range(10, 20)]
    results = await asyncio.gather(*(call(svg=each) for each in drawings))
    widths = [SAVED.fullmatch(result.content)[2] for result in results]
    assert widths == [str(side) for side in range(10, 20)]


@pytest.mark.parametrize("name", ["render_chart", "render_svg"])
async def test_a_package_that_is_missing_is_told_at_the_start(using, name, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda package: None)
    with pytest.raises(SetupError, match=r"pip install .*\[pictures\]'"):
        await using(name)


@pytest.fixture(scope="module")
def drawn():
    """Draw with the pool that the tools draw with, outside of pytest's own event loop."""
    loop = asyncio.new_event_loop()
    pool = WorkerPool("caesura.tools.picture.render_child")

    async def call(function, arguments):
        async with asyncio.timeout(60):
            return await pool.call(function, **arguments)

    def draw(function, **arguments):
        try:
            return base64.b64decode(loop.run_until_complete(call(function, arguments)))
        except WorkerFailed as error:
            assert error.kind == DrawingError.__name__, f"{error.kind}: {error}"
            return None

    yield draw
    loop.run_until_complete(pool.aclose())
    loop.close()


generous = settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


@generous
@given(text=svgs)
def test_no_svg_breaks_the_process(drawn, text):
    data = drawn("svg", text=text, max_side=64)
    assert data is None or max(struct.unpack_from(">II", data, 16)) <= 64


@pytest.mark.slow
@generous
@given(spec=drawable)
def test_no_chart_breaks_the_process(drawn, spec):
    data = drawn("chart", spec=spec, max_rows=100, max_side=256)
    assert data is None or max(struct.unpack_from(">II", data, 16)) <= 256
