"""Errors with a class for each kind of fault, shared by every layer.

A message says what was expected, what was found and what to do. The command line prints the message of a
`CastgymError` without a traceback and exits with code 2.
"""


class CastgymError(Exception):
    """Base of all errors that castgym raises on purpose."""


class DataError(CastgymError, ValueError):
    """A file, table or record does not have the documented form."""


class ConfigError(CastgymError, ValueError):
    """Settings, names or arguments that do not fit together."""


class InfrastructureError(CastgymError, RuntimeError):
    """The machinery failed, not the policy: it is retried, then left out and counted, never scored."""


class ForecasterUnavailableError(InfrastructureError):
    """A forecaster's package or weights are not installed."""
