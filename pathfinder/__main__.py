"""The ``pathfinder`` command.

Run     python -m pathfinder --help
"""


def main() -> None:
    """The console command, which Ctrl-C ends without a traceback, also while its modules are imported."""
    try:
        from pathfinder.cli import main

        main()
    except KeyboardInterrupt:
        raise SystemExit(130) from None


if __name__ == "__main__":
    main()
