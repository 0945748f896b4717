"""NumPy is imported by what uses an array, and by nothing that only names it."""

import subprocess
import sys

NAMES_IT = "import sys, weighbridge.comparison.value_errors as it, weighbridge.packing.unpacked_view"
ASKS = "print('numpy' in sys.modules); kind = it.np.uint8; print('numpy' in sys.modules, vars(it.np)['uint8'] is kind)"


def test_naming_numpy_imports_nothing_and_the_first_use_imports_it_once() -> None:
    command = [sys.executable, "-c", f"{NAMES_IT}; {ASKS}"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["False", "True", "True"]
