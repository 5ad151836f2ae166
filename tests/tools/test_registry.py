import pytest

from caesura.tools import Registry, Tool


async def nothing() -> None:
    pass


def named(name: str) -> Tool:
    return Tool(name, f"Do {name}.", {"type": "object"}, nothing)


def test_tools_in_the_order_in_which_they_were_added():
    first, second = named("zeta"), named("alpha")
    registry = Registry([first])
    assert registry.add(second) is second
    assert registry.names == ("zeta", "alpha")
    assert list(registry) == [first, second]
    assert registry.get("alpha") is second
    assert registry.get("beta") is None
    assert "zeta" in registry
    assert "beta" not in registry
    assert len(registry) == 2
    assert registry.specs() == [first.spec(), second.spec()]


@pytest.mark.parametrize("name", ["a", "_", "get_weather-2", "A" * 64])
def test_valid_names(name):
    assert Registry([named(name)]).names == (name,)


@pytest.mark.parametrize("name", ["", "2x", "-a", "a b", "a.b", "é", "a\n", "A" * 65])
def test_invalid_names_are_refused(name):
    with pytest.raises(ValueError, match="invalid tool name"):
        Registry([named(name)])


def test_a_name_twice_is_refused():
    with pytest.raises(ValueError, match="the tool name 'a' is taken"):
        Registry([named("a"), named("a")])


def test_a_plain_function_is_refused():
    with pytest.raises(TypeError, match="decorate the function with @tool"):
        Registry([nothing])


def test_a_selection_has_the_order_asked_for_and_shares_the_limits():
    registry = Registry([named("a"), named("b"), named("c")])
    selection = registry.select(["c", "a"])
    assert selection.names == ("c", "a")
    assert selection.limits is registry.limits
    assert registry.names == ("a", "b", "c")


def test_an_unknown_name_is_answered_with_the_nearest_and_all():
    registry = Registry([named("calculator"), named("clock")])
    with pytest.raises(ValueError) as caught:
        registry.select(["clok"])
    assert str(caught.value) == (
        "unknown tool 'clok'; did you mean 'clock'? known tools: calculator, clock"
    )
    assert registry.unknown("xyz") == "unknown tool 'xyz'; known tools: calculator, clock"
    assert Registry().unknown("xyz") == "unknown tool 'xyz'; there are no tools"


def test_an_endless_name_is_cut():
    assert len(Registry().unknown("x" * 100_000)) < 120
