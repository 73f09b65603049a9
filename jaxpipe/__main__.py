"""`python -m jaxpipe`."""

import sys

from jaxpipe.cli import main

sys.exit(main())
