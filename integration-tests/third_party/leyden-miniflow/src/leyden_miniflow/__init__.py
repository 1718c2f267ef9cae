"""Leyden for miniflow: every agent of a chain can be trained."""

from leyden_miniflow import adapter

__version__ = "0.1.0"

__all__ = ["adapter"]
