#!/usr/bin/env python
"""Toolcrib's command line: `python manage.py up` starts everything."""

import os
import sys

from django.core.management import execute_from_command_line

from config.env import BadSetting


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    os.umask(0o077 if os.geteuid() else 0o027)
    try:
        execute_from_command_line(sys.argv)
    except (BadSetting, OSError) as problem:
        sys.exit(f"Toolcrib cannot use its settings or its data directory: {problem}")
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
