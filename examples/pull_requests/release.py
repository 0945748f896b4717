"""Write what is released of the trained model: the same values, in a folder of its own."""

from __future__ import annotations

import shutil
from pathlib import Path

from safetensors.torch import load_file, save_file

weights = load_file("model/model.safetensors")
Path("release").mkdir(exist_ok=True)
save_file(weights, "release/model.safetensors")
shutil.copy("model/config.json", "release/config.json")
