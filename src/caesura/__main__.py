"""``python -m caesura`` is the ``caesura`` command."""

from caesura.runtime.cli import main

if __name__ == "__main__":
    main()
