"""Run the command line with ``python -m shrinkfx``."""

import sys

from shrinkfx.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
