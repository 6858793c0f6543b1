"""The ``pathfinder`` command.

Run     python -m pathfinder --help
"""

from pathfinder.cli import main

if __name__ == "__main__":
    main()
