from caesura.tools.schema.signature import argument_descriptions, first_paragraph


def google(city, unit, days):
    """Look up the weather
    of a city.

    More that a model need not read.

    Args:
        city (str): the city's name,
            in English: as on a map
        unit: C or F
        days:

    Returns:
        text: the weather
    """


def bare():
    pass


def arguments_first(x):
    """Args:
    x: a number
    """


def test_first_paragraph_is_one_line():
    assert first_paragraph(google) == "Look up the weather of a city."


def test_no_docstring_is_no_description():
    assert first_paragraph(bare) == ""
    assert argument_descriptions(bare) == {}


def test_a_section_is_not_a_description():
    assert first_paragraph(arguments_first) == ""


def test_arguments_with_types_continuations_and_the_end_of_the_section():
    assert argument_descriptions(google) == {
        "city": "the city's name, in English: as on a map",
        "unit": "C or F",
    }
