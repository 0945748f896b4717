"""Let two ranks meet by gloo in a store that outlives them, as torchrun has them after a restart: `meetings.py N`.

Prints how N second meetings ended. With --own-keys each life has keys of its own. Nothing watches, and nothing is
launched but forks: `weighbridge watch RUN -- python benchmarks/meetings.py N` is the same under a witness.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import random
import signal
import time
from collections import Counter

from torch import distributed
from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]

LIMIT, DELAYS = dt.timedelta(seconds=20), (0.0, 0.05, 0.2)  # seconds by which one rank comes later
REFUSED, OTHER = 3, 4


def rank(number: int, port: int, prefix: str, delay: float, stays: float) -> int:
    """Fork a rank that meets the other one, and stays so many seconds; return its pid."""
    pid = os.fork()
    if pid:
        return pid
    code = OTHER
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        time.sleep(delay)
        store = PrefixStore(prefix, TCPStore("127.0.0.1", port, is_master=False, timeout=LIMIT))
        distributed.init_process_group("gloo", store=store, rank=number, world_size=2, timeout=LIMIT)
        time.sleep(stays)
        code = 0
    except RuntimeError as problem:
        code = REFUSED if "refused" in str(problem) else OTHER
    finally:
        os._exit(code)


def ended(pids: list[int]) -> str:
    """Return how a meeting ended; one of 12 s hangs. A rank that was refused ends the other, as torchrun does."""
    codes, until = dict[int, int](), time.monotonic() + 12
    while len(codes) < 2 and REFUSED not in codes.values() and time.monotonic() < until:
        for pid in [one for one in pids if one not in codes]:
            done, status = os.waitpid(pid, os.WNOHANG)
            codes |= {pid: os.waitstatus_to_exitcode(status)} if done else {}
        time.sleep(0.02)
    for pid in [one for one in pids if one not in codes]:
        end(pid)
    if REFUSED in codes.values():
        return "refused"
    return "met" if [*codes.values()] == [0, 0] else "hung"


def end(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def main() -> None:
    read = argparse.ArgumentParser()
    read.add_argument("meetings", type=int)
    read.add_argument("--own-keys", action="store_true")
    asked, count = read.parse_args(), Counter[str]()
    prefixes = ("life-0", "life-1") if asked.own_keys else ("", "")
    for _ in range(asked.meetings):
        store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        first = [rank(number, store.port, prefixes[0], 0.0, 60.0) for number in range(2)]
        time.sleep(1.0)
        for pid in first:
            end(pid)
        delays = random.sample((0.0, random.choice(DELAYS)), 2)
        count[ended([rank(at, store.port, prefixes[1], delay, 0.5) for at, delay in enumerate(delays)])] += 1
    print(f"{asked.meetings} meetings: {count['met']} met, {count['refused']} refused, {count['hung']} hung")


main()
