"""`python -m fourward`: the same as `fourward`."""

import sys

from fourward._cli.app import main

if __name__ == "__main__":
    sys.exit(main())
