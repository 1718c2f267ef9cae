"""Leyden for AutoGen: every agent of a team can be trained."""

from leyden_autogen import adapter

__version__ = "0.1.0"

__all__ = ["adapter"]
