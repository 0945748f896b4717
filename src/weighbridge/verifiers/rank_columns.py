"""How far the columns of a run's ranks agree: `column_agreement`, of a folder of ranks."""

import dataclasses

from weighbridge.core import SubjectKind
from weighbridge.verifiers import column_agreement

VERIFIER = dataclasses.replace(column_agreement.VERIFIER, kinds=(SubjectKind.RUN,))
