"""Run the command line as `python -m weighbridge`."""

from weighbridge.cli import main

if __name__ == "__main__":
    main()
