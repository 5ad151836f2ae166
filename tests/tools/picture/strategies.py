"""Hostile drawings: SVG and Vega-Lite that nearly make sense."""

from typing import Any

from hypothesis import strategies as st


def words(text: str) -> st.SearchStrategy[str]:
    """One of the words of a text."""
    return st.sampled_from(text.split())


numbers = st.one_of(
    st.integers(-5, 500).map(str),
    st.sampled_from(
        ["1e9", "1e308", "-1", "0", "NaN", "100%", "1e-300", "0.0001", "10mm", "", "0 0 10 10"]
    ),
)
references = words(
    "#a #b # url(#a) url(#b) /etc/passwd file:///etc/passwd http://10.0.0.1/ url(http://10.0.0.1/) "
    "data:image/png;base64,AAAA data:image/svg+xml;base64,PHN2Zy8+"
)
names = words(
    "g rect circle path use image text tspan defs clipPath mask pattern filter feGaussianBlur "
    "feTurbulence feImage feTile linearGradient stop style symbol svg switch marker a script "
    "foreignObject textPath"
)
keys = words(
    "width height x y r d fill stroke stroke-width stroke-dasharray transform viewBox style filter "
    "mask clip-path href xlink:href id stdDeviation numOctaves baseFrequency font-size points "
    "patternUnits offset result in marker-end preserveAspectRatio"
)
values = st.one_of(
    numbers,
    references,
    st.sampled_from(["a", "b", "red", "M0 0L9 9", "rotate(5)", "scale(1e9)", "userSpaceOnUse"]),
    st.text(max_size=10),
)


def _element(name: str, attributes: dict[str, str], inner: str) -> str:
    written = "".join(f' {key}="{value}"' for key, value in attributes.items())
    return f"<{name}{written}>{inner}</{name}>"


elements = st.recursive(
    st.one_of(st.text(max_size=8), references),
    lambda inner: st.builds(
        _element,
        names,
        st.dictionaries(keys, values, max_size=5),
        st.lists(inner, max_size=4).map("".join),
    ),
    max_leaves=15,
)
prologues = st.sampled_from(
    [
        "",
        "\ufeff",
        "```svg\n",
        "<?xml version='1.0' encoding='UTF-16'?>",
        "<!DOCTYPE svg>",
        "<!DOCTYPE svg [<!ENTITY e SYSTEM 'file:///etc/passwd'>]>",
    ]
)
svgs = st.one_of(
    st.builds(
        lambda prologue, root: prologue + root,
        prologues,
        st.builds(
            _element,
            st.just("svg"),
            st.dictionaries(keys, values, max_size=4),
            st.lists(elements, max_size=4).map("".join),
        ),
    ),
    st.text(alphabet="<>/&;\"'= svg!-[]xmlnéa0", max_size=60),
)

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**12), 10**12),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["a", "b", "2024-01-01", "quantitative", "nominal", "bar", "line", "log"]),
)
anything = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(
            words(
                "field type aggregate bin scale axis sort stack domain range tickCount labelExpr "
                "values format title legend url expr signal step condition datum repeat"
            ),
            inner,
            max_size=4,
        ),
    ),
    max_leaves=8,
)
rows = st.lists(
    st.dictionaries(st.sampled_from(["a", "b", "c"]), scalars, max_size=3), min_size=1, max_size=6
)
sources = st.one_of(
    st.builds(lambda values: {"values": values}, rows),
    st.builds(lambda values: {"values": values}, rows),
    rows,
    st.sampled_from(
        [
            {"url": "file:///etc/passwd"},
            {"values": "a,b\n1,2", "format": {"type": "csv"}},
            {"sequence": {"start": 0, "stop": 1e9, "step": 1}},
            {"values": {"a": [1, 2], "b": [3, 4]}},
        ]
    ),
    anything,
)
marks = st.one_of(
    words("bar line point arc area rect text boxplot errorband trail rule"),
    words("bar line point arc area rect text boxplot errorband image tick"),
    st.builds(lambda kind, more: {"type": kind, "size": more}, st.just("bar"), anything),
    anything,
)
channels = st.one_of(
    st.builds(
        lambda field, kind: {"field": field, "type": kind},
        st.sampled_from(["a", "b", "c", "d"]),
        st.sampled_from(["quantitative", "nominal", "temporal", "ordinal", "Q", "number"]),
    ),
    st.sampled_from(["a", "b", "c"]).map(lambda field: {"field": field}),
    st.sampled_from([{"aggregate": "count"}, {"field": "a", "bin": True}, "b"]),
    anything,
)
encodings = st.dictionaries(
    words("x y x2 color size shape theta row column facet tooltip text order"),
    channels,
    max_size=4,
)


def views(data: st.SearchStrategy[Any], mark: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Charts of one view, hostile in everything else."""
    return st.fixed_dictionaries(
        {"data": data, "mark": mark},
        optional={
            "encoding": encodings,
            "width": anything,
            "height": anything,
            "title": anything,
            "config": st.dictionaries(
                st.sampled_from(["axis", "view", "mark", "font", "background"]), anything
            ),
            "transform": st.lists(
                st.one_of(
                    anything,
                    st.sampled_from(
                        [
                            {"calculate": "datum.a * 2", "as": "d"},
                            {"filter": "datum.a > 1"},
                            {
                                "lookup": "a",
                                "from": {"data": {"url": "http://10.0.0.1/"}, "key": "a"},
                            },
                            {"fold": ["a", "b"]},
                            {"impute": "a", "key": "b", "keyvals": {"start": 0, "stop": 1e9}},
                        ]
                    ),
                ),
                max_size=2,
            ),
            "params": anything,
            "projection": anything,
        },
    )


hostile = views(sources, marks)
specs = st.one_of(
    hostile,
    st.builds(lambda inner: {"hconcat": inner}, st.lists(hostile, max_size=2)),
    st.builds(
        lambda inner, data: {"layer": inner, "data": data}, st.lists(hostile, max_size=2), sources
    ),
    anything.filter(lambda value: isinstance(value, dict)),
)
"""JSON objects that are Vega-Lite, nearly."""
drawable = views(
    rows.map(lambda values: {"values": values}),
    words("bar line point arc area rect text boxplot errorband trail rule tick circle"),
)
"""Specifications that get as far as the library."""
