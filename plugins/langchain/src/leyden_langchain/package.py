"""The supported versions of LangChain: the one place, read by nox, the README's table and the version check."""

from __future__ import annotations

FRAMEWORK = "langchain"
IMPORTS = ("langchain_core",)
SUPPORTED = ("langchain-core>=0.3.68,<2",)
"""PEP 508; the tests run with the lower bound and with the newest release."""
