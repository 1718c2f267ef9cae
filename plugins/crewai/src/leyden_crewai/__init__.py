"""Leyden for CrewAI: every agent of a crew can be trained."""

from leyden_crewai import adapter

__version__ = "0.1.0"

__all__ = ["adapter"]
