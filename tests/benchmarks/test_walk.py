"""The walks that count what a reader enters."""

from benchmarks.walk import Walk
from caesura.tools.clock import clock


def test_what_is_entered_is_counted_by_file_and_function() -> None:
    walk, elsewhere = Walk(), Walk()
    with walk.walking():
        clock.spec()
        clock.spec()
    assert [file.rpartition("/")[2] for file in walk.files] == ["tool.py"]
    assert walk.entered.total() == 2 * len(walk.entered)
    assert walk.changes == 0
    with elsewhere.walking():
        sorted([2, 1])
    assert elsewhere.files == set()
    elsewhere.include(walk)
    assert elsewhere.files == walk.files
