"""The supported versions of miniflow."""

from __future__ import annotations

FRAMEWORK = "miniflow"
IMPORTS = ("miniflow",)
SUPPORTED = ("miniflow>=1.0,<2",)
