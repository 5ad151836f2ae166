"""Environment variables in a configuration's texts."""

import pytest

from caesura.tools.services import with_variables

KNOWN = {"KEY": "k", "EMPTY": "", "ODD": "${KEY}"}


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("Bearer ${KEY}", "Bearer k"),
        ("${KEY}${KEY}", "kk"),
        ("${ABSENT:-there} and ${EMPTY:-here}", "there and here"),
        ("${ABSENT:-}", ""),
        ("${ODD}", "${KEY}"),  # what a variable holds is no template
        ("$KEY {KEY} ${1}", "$KEY {KEY} ${1}"),
    ],
)
def test_variables_are_filled_in(text, filled):
    assert with_variables(text, KNOWN) == filled


@pytest.mark.parametrize("name", ["ABSENT", "EMPTY"])
def test_one_that_is_not_set_is_named(name):
    with pytest.raises(ValueError, match=f"the environment variable {name} is not set"):
        with_variables("${KEY} ${" + name + "}", KNOWN)
