"""Leyden for LangChain: agents by run name, and tool spans."""

from leyden_langchain import adapter

__version__ = "0.1.0"

__all__ = ["adapter"]
