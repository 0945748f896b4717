"""What a real quantiser makes of known values, for tests that have none."""

from __future__ import annotations

import base64

import numpy as np

# What ggml's quantiser (0.25.3) makes of VALUES in Q4_K, without importances.
VALUES = ((np.arange(512, dtype=np.uint64) * 2654435761 % 2**32) / 2.0**31 - 1).astype("<f4").reshape(2, 256)
QUANTISED = base64.b64decode(
    "MxgXJP///vz8/f78rf69/8BpA61H0XsVvljynDbAahStSOKLJc9p85030XoUvljiWfOcNtB6BK5I4oslz2nznTfRexW+WPKcJsBq"
    "BK1H4YvhiyXPafOcNtB6FL5Y8pw1z2kDrUfhiyW+WPKcNtB6FHoUvljijCXPaQOtR9F7Fb5Y8pw2wHoUrkfhiyXPafOdMBgdJP3+"
    "//38+/76zb3+zfOdN9F7Fb9Y4owmwGoErkjhexW/WfOdN9F6FK5I4owmjCbAagStR9F7Fb9Z85w30WoErkjijCbPafOdN9F7Fb4V"
    "v1nznDbQagSuSOKMJc9p85030XsVvljyjCbAagSuR65I4owmz2nznTfRexW/WPKMJsBqBK5I4osVv1nznTfR"
)
