"""Gantt charts are well-formed, to scale, and safe with any name."""

from xml.etree import ElementTree

import pytest

from caesura.planning.show.gantt import Bar, Chart, ticks, to_html, to_svg

SVG = "{http://www.w3.org/2000/svg}"


def boxes(svg: str) -> dict[str, tuple[float, float, float]]:
    """Return the left edge, the top and the width of each bar, by its tooltip."""
    return {
        title.text or "": (
            float(box.attrib["x"]),
            float(box.attrib["y"]),
            float(box.attrib["width"]),
        )
        for box in ElementTree.fromstring(svg).iter(f"{SVG}rect")
        for title in box.iter(f"{SVG}title")
    }


def test_both_charts_have_one_scale() -> None:
    plan = Chart("plan", [Bar(0, "small", 0, 10), Bar(1, "large", 10, 20)])
    run = Chart("run", [Bar(0, "small", 0, 40)])
    found = boxes(to_svg([plan, run], 2))
    (short, long_, real) = found.values()
    assert short[2] == pytest.approx(real[2] / 4, abs=0.2)
    assert long_[0] == pytest.approx(short[0] + short[2], abs=0.2)
    assert short[1] < long_[1] < real[1], "devices below each other, and the run below the plan"


def test_models_that_share_a_device_are_drawn_side_by_side() -> None:
    svg = to_svg([Chart("plan", [Bar(0, "small", 0, 10), Bar(0, "large", 5, 20)])], 1)
    (_, first, _), (_, second, _) = boxes(svg).values()
    assert first != second


def test_names_are_text() -> None:
    chart = Chart("<script>", [Bar(0, "a<b>&", 0, 10)])
    assert "<script>" not in to_html([chart], 1, "<script>")
    assert any("a<b>&" in told for told in boxes(to_svg([chart], 1)))


def test_ticks_are_round_numbers() -> None:
    assert ticks(97)[:3] == [0, 10, 20]
    assert ticks(0.9)[1] == pytest.approx(0.1)
    assert all(len(ticks(seconds)) <= 11 for seconds in (0.3, 7, 64, 1234))
