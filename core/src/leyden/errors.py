"""Every error that Leyden raises on purpose: one base class, each also a stdlib type, each message says what to do next."""

from __future__ import annotations


class LeydenError(Exception):
    """Base of all errors raised by Leyden."""


class NotFound(LeydenError, LookupError):
    """An id, version or name that the store does not hold."""


class InvalidInput(LeydenError, ValueError):
    """A value that the caller must correct: a broken task file, a non-finite reward, an impossible page size."""


class ConfigError(InvalidInput):
    """An unknown, contradictory or unsupported setting."""


class MarkError(InvalidInput):
    """A mark that matches no agent, or two marks that contradict each other."""


class Conflict(LeydenError, RuntimeError):
    """The same id was used for two different things."""


class StoreUnavailable(LeydenError, ConnectionError):
    """The store cannot be reached or has been closed. Told apart from an empty queue, which is an empty answer."""


class RoutingError(LeydenError, RuntimeError):
    """A marked agent's call cannot be sent to its policy's endpoint. The attempt fails, loudly."""


class MissingTokenIds(RoutingError):
    """The policy's server answered without token ids or log-probs, so nothing could be trained on the answer."""


class EndpointDown(LeydenError, ConnectionError):
    """Nobody listens at a policy's endpoint."""


class RolloutsFailed(LeydenError, RuntimeError):
    """Every rollout of a request failed, so there is nothing to learn from."""


class PluginError(LeydenError, ImportError):
    """A plugin that was asked for by name cannot be loaded."""
