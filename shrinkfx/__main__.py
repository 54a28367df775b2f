"""``python -m shrinkfx`` is ``shrinkfx``."""

import sys

from shrinkfx.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
