"""`python -m microbench.gpucheck.child STAGE FOLDER SECONDS INDEX DRY`: one stage, a JSON line on stdout per finding.

Exit codes: 0 done, 2 the device can't be opened, 3 the device was lost, 1 anything else; the reason is the last line.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from microbench.errors import Unavailable
from microbench.gpucheck.plan import plan
from microbench.gpucheck.stages import STAGE_FUNCTIONS, Task

UNAVAILABLE, LOST = 2, 3
LOST_WORDS = (
    "unspecified launch failure",
    "illegal memory access",
    "illegal instruction",
    "device-side assert",
    "uncorrectable",
    "fallen off the bus",
    "device is unavailable",
    "CUDA error: unknown",
    "GPU is lost",
)
"""Parts of the messages of CUDA errors after which a process can't use its device any more (CUDA runtime API, sticky
errors)."""


def main(arguments: list[str]) -> int:
    """Run the stage; findings go to stdout as they come."""
    stage, folder, seconds, index, dry = arguments
    task = Task(
        plan=plan(dry=dry == "dry", index=int(index)),
        folder=Path(folder),
        deadline=time.monotonic() + float(seconds),
    )
    try:
        for found in STAGE_FUNCTIONS[stage](task):
            print(json.dumps(found), flush=True)
    except Unavailable as why:
        print(" ".join(str(why).split()), file=sys.stderr)
        return UNAVAILABLE
    except Exception as error:
        line = f"{type(error).__name__}: {' '.join(str(error).split())}"[:500]
        print(line, file=sys.stderr)
        return LOST if any(words in line for words in LOST_WORDS) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
