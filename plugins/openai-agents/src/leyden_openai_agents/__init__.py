"""Leyden for the OpenAI Agents SDK: every agent of a run, and every agent used as a tool, can be trained."""

from leyden_openai_agents import adapter

__version__ = "0.1.0"

__all__ = ["adapter"]
