"""Which facts the ranks of a run state alike."""

from weighbridge.verifiers.fact_agreement import OF_RANKS as VERIFIER

__all__ = ["VERIFIER"]
