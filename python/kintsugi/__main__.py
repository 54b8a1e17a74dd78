"""Entry point of `python -m kintsugi`."""

import sys

from .cli import main

sys.exit(main())
