import os

import pytest

# ALFWorld makes its directory when it is imported; the tests' home of caches is thrown away.
os.environ.setdefault("ALFWORLD_DATA", os.path.join(os.environ["XDG_CACHE_HOME"], "alfworld"))  # noqa: PTH118


@pytest.fixture(scope="session")
def games(tmp_path_factory):
    """A directory in which games are kept that were drawn, over all tests."""
    return tmp_path_factory.mktemp("games")
