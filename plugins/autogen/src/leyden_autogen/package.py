"""The supported versions of AutoGen: the one place, read by nox, the README's table and the version check."""

from __future__ import annotations

FRAMEWORK = "autogen"
IMPORTS = ("autogen_agentchat", "autogen_core")
SUPPORTED = ("autogen-agentchat>=0.6,<0.8", "autogen-core>=0.6,<0.8", "autogen-ext>=0.6,<0.8")
"""PEP 508; the tests run with the lower bounds and with the newest releases. `pyautogen` 0.10 is another name of
`autogen-agentchat`; `autogen-ext` holds the model clients."""
