"""Run the command line, as `python -m weighbridge` and as the installed script."""

import atexit
import gc

# What starting up makes stays: the collector looks through it in vain, as it is made and once more at the end.
gc.set_threshold(100_000)
atexit.register(gc.freeze)  # the first to be registered is called last

from weighbridge.cli import main  # noqa: E402 -- importing is most of starting up

if __name__ == "__main__":
    main()
