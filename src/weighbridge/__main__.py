"""Run the command line, as `python -m weighbridge` and as the installed script."""

import gc

gc.set_threshold(100_000)  # what starting up makes stays: looking through it again and again is a twentieth of it

from weighbridge.cli import main  # noqa: E402 -- importing is most of starting up

if __name__ == "__main__":
    main()
