"""Which facts the ranks of a run state alike: `fact_agreement`, of a folder of ranks."""

import dataclasses

from weighbridge.core import SubjectKind
from weighbridge.verifiers import fact_agreement

VERIFIER = dataclasses.replace(fact_agreement.VERIFIER, kinds=(SubjectKind.RUN,))
