"""Train a small model on tokens that follow from each other, recorded, and save it: `python train.py [DEVICE]`."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn

from weighbridge.recorder import Recorder

VOCAB, SEQ, BATCH, ROWS, EPOCHS, WIDTH = 64, 32, 32, 640, 3, 16
asked = sys.argv[1] if sys.argv[1:] else "cpu"
if asked == "cuda" and not torch.cuda.is_available():
    sys.exit("DEVICE_UNAVAILABLE: CUDA was asked for, and there is none here")
device = torch.device(asked)

torch.manual_seed(0)
model = nn.Sequential(nn.Embedding(VOCAB, WIDTH), nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, VOCAB))
model.to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
rows = (torch.randint(0, VOCAB, (ROWS, 1)) + torch.randint(0, 4, (ROWS, SEQ + 1)).cumsum(1)) % VOCAB
loader: Any = torch.utils.data.DataLoader(rows, batch_size=BATCH, shuffle=True)  # type: ignore[arg-type]
facts: dict[str, Any] = {"seq_len": SEQ, "batch_size": BATCH, "vocab": VOCAB, "corpus_tokens": ROWS * SEQ}
shutil.rmtree("runs/a", ignore_errors=True)
with Recorder("runs/a", model, optimizer, loader=loader, requested_device=asked, **facts) as recorder:
    for _ in range(EPOCHS):
        for batch in recorder.loader:
            logits = model(batch[:, :-1].to(device))
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten().to(device))
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            recorder.step(loss)

Path("model").mkdir(exist_ok=True)
save_file({name: weight.to(torch.bfloat16) for name, weight in model.state_dict().items()}, "model/model.safetensors")
shape = {"num_hidden_layers": 1, "num_attention_heads": 1, "hidden_size": WIDTH, "vocab_size": VOCAB}
Path("model/config.json").write_text(json.dumps({"model_type": "tiny", **shape}))
