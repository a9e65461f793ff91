"""`python -m condensery`."""

import sys

from condensery.cli import main

sys.exit(main())
