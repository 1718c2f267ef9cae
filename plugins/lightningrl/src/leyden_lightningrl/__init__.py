"""LightningRL for Leyden: reinforcement learning of the agents that are marked, on verl, Ray and vLLM."""

from __future__ import annotations

from leyden_lightningrl.algorithm import LightningRL
from leyden_lightningrl.config import Settings
from leyden_lightningrl.credit import Credit, uniform

__version__ = "0.1.0"

__all__ = ["Credit", "LightningRL", "Settings", "uniform"]
