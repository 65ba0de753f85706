"""Coverage-guided fuzzing of one target, with libFuzzer by way of atheris.

    python -m tests.fuzz.run TARGET SECONDS [DIRECTORY]
    python -m tests.fuzz.run TARGET 5000x [DIRECTORY]      5,000 inputs, the same ones every time

New inputs are kept in DIRECTORY (default: .fuzz/TARGET), so that the next run continues from there. An input that
violates a property is printed and kept as crash-*, and the exit status is not 0: copy it to tests/fuzz/corpus/TARGET/.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["mailboxd", "frontmatter", "yaml"]):
    from tests.fuzz.targets import TARGETS, seeds

LARGEST = 8192
"""Bytes of an input. What is slow is slow in a few kilobytes already, or is found by the tests of a whole megabyte."""
SLOWEST = 20
"""Seconds for one input, under instrumentation on a loaded machine; without it they take milliseconds."""


def main() -> None:
    name, extent = sys.argv[1:3]
    counted = ["-seed=1", f"-runs={extent[:-1]}"] if extent.endswith("x") else [f"-max_total_time={extent}"]
    kept = Path(sys.argv[3] if len(sys.argv) > 3 else f".fuzz/{name}")
    kept.mkdir(parents=True, exist_ok=True)
    for seed in seeds(name):
        (kept / hashlib.sha256(seed).hexdigest()[:32]).write_bytes(seed[:LARGEST])
    options = [
        *counted,
        f"-max_len={LARGEST}",
        f"-timeout={SLOWEST}",
        "-rss_limit_mb=1024",
        f"-dict={Path(__file__).with_name('dictionary.txt')}",
        f"-artifact_prefix={kept}/",
        "-print_final_stats=1",
        "-verbosity=1",
    ]
    atheris.Setup([sys.argv[0], *options, str(kept)], TARGETS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
