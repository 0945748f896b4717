"""How far the columns of a run's ranks agree."""

from weighbridge.verifiers.column_agreement import OF_RANKS as VERIFIER

__all__ = ["VERIFIER"]
