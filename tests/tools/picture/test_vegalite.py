"""Vega-Lite made ready: what is refused, and what is filled in."""

import html
import re

import pytest
import vl_convert
from hypothesis import HealthCheck, given, settings

from caesura.tools.picture.markup import DrawingError
from caesura.tools.picture.vegalite import MAX_VIEW_SIDE, prepared
from tests.tools.picture.strategies import specs

ROWS = [{"month": "Mar", "sales": 3}, {"month": "Jan", "sales": 5}, {"month": "Feb", "sales": 4}]
DATA = {"values": ROWS}


def ready(**spec):
    return prepared({"data": DATA, "mark": "bar"} | spec, 100)


@pytest.mark.parametrize(
    "part",
    [
        {"data": {"url": "http://example.com/a.csv"}},
        {"data": {"url": "file:///etc/passwd"}},
        {"data": {"values": ROWS, "url": "a.csv"}},
        {"transform": [{"lookup": "a", "from": {"data": {"url": "a.csv"}, "key": "a"}}]},
        {"encoding": {"url": {"field": "month"}}},
        {"layer": [{"mark": "bar", "data": {"url": "a.csv"}}]},
        {"config": {"mark": {"url": "http://example.com/a.png"}}},
        {"data": {"u\x00rl": "http://example.com/a.csv"}},
    ],
)
def test_nothing_is_fetched(part):
    with pytest.raises(DrawingError, match="must not fetch anything"):
        ready(**part)


@pytest.mark.parametrize(
    "mark", ["image", "im\x00age", {"type": "image"}, "bars", {}, 7, None, ["bar"]]
)
def test_unknown_marks_are_told(mark):
    with pytest.raises(DrawingError, match="choose from: arc, area, bar"):
        ready(mark=mark)


def test_a_column_may_be_called_url():
    assert ready(data=[{"url": "http://example.com", "hits": 3}])


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ({"mark": "bar"}, 'no "data"'),
        ({"data": DATA}, 'no "mark"'),
        ({}, 'no "mark"'),
        ({"data": [], "mark": "bar"}, 'no "encoding"'),
        ({"data": list(range(101)), "mark": "bar"}, "more than 100 rows"),
        ({"data": {"values": "a\n" * 101}, "mark": "bar"}, "more than 100 rows"),
        ({"datasets": {"a": [1] * 60, "b": [1] * 60}, "mark": "bar"}, "more than 100 rows"),
        ({"data": {"sequence": {"start": 0, "stop": 1e9}}, "mark": "bar"}, "more than 100 rows"),
        ({"data": {"sequence": {"start": 0, "stop": 9, "step": 0}}, "mark": "bar"}, "sequence"),
        ({"data": {"sequence": 7}, "mark": "bar"}, "sequence"),
        ({"data": {"values": {"a": [1], "b": [1, 2]}}, "mark": "bar"}, "must have equal lengths"),
    ],
)
def test_what_is_refused(spec, told):
    with pytest.raises(DrawingError, match=told):
        prepared(spec, 100)


def test_a_layer_keeps_the_type_that_the_views_around_it_give():
    rows = {"values": [{"year": "2001-01", "n": 3}, {"year": "2002-01", "n": 5}]}
    around = {"x": {"type": "ordinal"}, "y": {"type": "quantitative"}}
    layer = [{"mark": "line", "encoding": {"x": {"field": "year"}, "y": {"field": "n"}}}]
    inner = prepared({"data": rows, "encoding": around, "layer": layer}, 9)["layer"][0]["encoding"]
    assert inner == {"x": {"field": "year"}, "y": {"field": "n"}}
    bare = prepared({"data": rows, "layer": layer}, 9)["layer"][0]["encoding"]
    assert (bare["x"]["type"], bare["y"]["type"]) == ("temporal", "quantitative")


def test_a_column_in_colours_and_shapes_has_one_legend():
    channels = {
        "x": {"field": "sales", "type": "quantitative"},
        **{name: {"field": "month", "type": "nominal"} for name in ("color", "shape")},
    }
    drawn = vl_convert.vegalite_to_svg(ready(mark="point", encoding=channels))
    assert drawn.count('aria-roledescription="legend"') == 1


def test_rows_of_all_views_are_counted_together():
    views = [{"data": [1] * 60, "mark": "bar"}, {"data": [1] * 60, "mark": "bar"}]
    with pytest.raises(DrawingError, match="more than 100 rows"):
        prepared({"hconcat": views}, 100)


def test_depth_is_bounded():
    title: dict = {}
    for _ in range(60):
        title = {"text": title}
    with pytest.raises(DrawingError, match="nested deeper"):
        ready(title=title)


def test_an_encoding_that_was_left_out():
    encoding = ready()["encoding"]
    assert encoding["x"]["field"] == "month"
    assert encoding["x"]["type"] == "nominal"
    assert encoding["y"] == {"field": "sales", "type": "quantitative"}
    assert encoding["x"]["sort"] is None, "months are not sorted by the alphabet"


def test_an_encoding_that_was_left_out_of_a_pie():
    encoding = ready(mark={"type": "arc"})["encoding"]
    assert encoding["theta"]["field"] == "sales"
    assert encoding["color"]["field"] == "month"


def test_one_column_is_counted():
    encoding = ready(data=[{"month": "Jan"}, {"month": "Jan"}])["encoding"]
    assert encoding["y"] == {"aggregate": "count"}


@pytest.mark.parametrize(
    ("values", "mark", "kind"),
    [
        ([1, 2.5], "line", "quantitative"),
        ([2020, 2021], "bar", "ordinal"),
        (["a", "b"], "line", "nominal"),
        ([True, False], "line", "nominal"),
        (["2024-01-01", "2024-02-01T10:00:00Z"], "line", "temporal"),
        ([None, 3], "line", "quantitative"),
        ([1, "a"], "line", "nominal"),
    ],
)
@pytest.mark.parametrize("said", [{}, {"type": "number"}])
def test_types_that_were_left_out(values, mark, kind, said):
    spec = ready(
        data=[{"v": value} for value in values], mark=mark, encoding={"x": {"field": "v"} | said}
    )
    assert spec["encoding"]["x"]["type"] == kind


def test_what_is_said_stays():
    said = {"field": "month", "type": "ordinal", "sort": "descending", "axis": None}
    assert ready(encoding={"x": said})["encoding"]["x"] == said


def test_derived_fields_get_no_type():
    said = {"field": "sales", "bin": True}
    assert ready(encoding={"x": said})["encoding"]["x"] == said


def test_fields_that_are_no_columns():
    with pytest.raises(DrawingError, match="no column 'mont': its columns are month, sales"):
        ready(encoding={"x": {"field": "mont"}})
    assert ready(
        encoding={"x": {"field": "double"}},
        transform=[{"calculate": "2 * datum.sales", "as": "double"}],
    )
    assert ready(data=[{"a": {"b": 1}}], encoding={"x": {"field": "a.b"}})


@pytest.mark.parametrize(
    ("data", "rows"),
    [
        (ROWS, ROWS),
        ({"values": {"a": [1, 2], "b": [3, 4]}}, [{"a": 1, "b": 3}, {"a": 2, "b": 4}]),
        ([7, 8], [{"x": 1, "y": 7, "data": 7}, {"x": 2, "y": 8, "data": 8}]),
        ([{"a": 1}, None], [{"a": 1}]),
        ([{"a": "b\x00\ud800c"}], [{"a": "bc"}]),
    ],
)
def test_rows_in_other_forms(data, rows):
    assert ready(data=data)["data"]["values"] == rows


@pytest.mark.parametrize("name", ["U.S. sales", "Price [USD]", "y.1", "it's", "a\\b", "plain"])
def test_a_column_is_drawn_whatever_its_name(name):
    values = [{"month": "Jan", name: 37}, {"month": "Feb", name: 91}]
    text = {"field": name, "type": "quantitative"}
    spec = ready(
        data={"values": values},
        mark="text",
        encoding={
            "x": {"field": "month"},
            "y": {"field": name},
            "text": text,
            "tooltip": [text],
        },
    )
    drawn = vl_convert.vegalite_to_svg(spec)
    labels = re.findall(r"<text[^>]*>([^<]*)</text>", drawn)
    assert {"37", "91"} <= set(labels)
    assert html.unescape(" ".join(labels)).count(name) == 1  # the title of the y axis


@pytest.mark.parametrize(
    "spec",
    [
        {"data": {"values": [14, 3, 27]}, "mark": "arc", "encoding": {"theta": {"field": "data"}}},
        {
            "data": {"values": [{"a": 1, "b": 2}]},
            "params": [{"name": "brush", "select": {"type": "interval", "mark": {"fill": "#333"}}}],
            "mark": "point",
            "encoding": {"x": {"field": "a"}, "y": {"field": "b"}},
        },
        {
            "data": {
                "values": {
                    "type": "Feature",
                    "geometry": {
                        "type": "Polygon",
                        "coordinates": [[[0, 0], [0, 5], [5, 5], [0, 0]]],
                    },
                    "properties": {},
                }
            },
            "mark": "geoshape",
        },
    ],
)
def test_forms_of_vega_lites_gallery_are_drawn(spec):
    assert "<path" in vl_convert.vegalite_to_svg(ready(**spec))


def test_labels_are_level_while_they_fit():
    few = ready()["encoding"]["x"]["axis"]["labelAngle"]
    many = ready(data=[{"a": f"a long name of {n}", "b": n} for n in range(30)])
    assert (few, many["encoding"]["x"]["axis"]["labelAngle"]) == (0, -45)


def test_sizes():
    assert (ready()["width"], ready()["height"]) == (640, 400)
    assert ready(width=300)["width"] == 300
    assert ready(width=1e12)["width"] == MAX_VIEW_SIDE
    assert "width" not in ready(encoding={"column": {"field": "month"}})
    assert (
        prepared({"hconcat": [{"mark": "bar", "width": 1e12}], "data": DATA}, 9)["hconcat"][0][
            "width"
        ]
        == MAX_VIEW_SIDE
    )


def test_a_config_of_ones_own_is_merged():
    config = ready(config={"axis": {"grid": False}, "background": "black"})["config"]
    assert config["background"] == "black"
    assert config["axis"]["grid"] is False
    assert config["axis"]["labelFontSize"] > 10


def test_the_given_specification_is_left_alone():
    spec = {"$schema": "x", "data": {"values": [{"a": "b"}]}, "mark": "bar", "usermeta": {}}
    prepared(spec, 9)
    assert spec == {"$schema": "x", "data": {"values": [{"a": "b"}]}, "mark": "bar", "usermeta": {}}


@settings(max_examples=120, deadline=60_000, suppress_health_check=[HealthCheck.too_slow])
@given(specs)
def test_any_object_is_made_ready_or_refused(spec):
    try:
        assert isinstance(prepared(spec, 100), dict)
    except DrawingError as error:
        assert str(error)
