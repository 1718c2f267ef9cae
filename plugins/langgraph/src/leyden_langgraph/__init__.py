"""Leyden for LangGraph: every node of a graph is an agent that can be trained."""

from leyden_langgraph import adapter

__version__ = "0.1.0"

__all__ = ["adapter"]
