#!/usr/bin/env python3
"""Plays the scripts in scripts/ through the shared object's C interface, as packetdrill would.

    interop/packetdrill/run.py [--library PATH] [-k WORD]... [SCRIPT]...

Needs nothing but Python: no root, no network, no packetdrill. The clock is virtual. Each script is played a
second time with its last expectation changed, and has to fail: a player that notices nothing proves nothing.
"""

import argparse
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "harness"))

from play import Failed, Player  # noqa: E402
from script import Bad, Script  # noqa: E402

# Scripts are played one process each: one that ends the process must not take the others with it.
TIMEOUT_SECONDS = 60
EXPECTATION_FAILED = 3


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    built = HERE.parents[1] / "target" / "debug" / "libfullbore_packetdrill.so"
    parser.add_argument("--library", type=Path, default=built, metavar="PATH")
    parser.add_argument("-k", action="append", default=[], metavar="WORD", help="only scripts with WORD in the name")
    parser.add_argument("--alone", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--changed", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("scripts", nargs="*", type=Path, metavar="SCRIPT")
    return parser.parse_args()


def play(library, path, is_changed):
    try:
        script = Script(path)
        if is_changed:
            script.change_last_expectation()
        Player(str(library), script).run()
    except (Failed, Bad) as error:
        print(error)
        return EXPECTATION_FAILED
    return 0


def in_a_process(library, path, *more):
    """The exit code, and what was printed."""
    command = [sys.executable, __file__, "--library", str(library), "--alone", str(path), *more]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        return None, f"not over after {TIMEOUT_SECONDS} s"
    return done.returncode, (done.stdout + done.stderr).strip()


def problem_of(library, path):
    code, text = in_a_process(library, path)
    if code != 0:
        return text or f"it ended with {code}"
    code, text = in_a_process(library, path, "--changed")
    return None if code == EXPECTATION_FAILED else f"with its last expectation changed: {code} {text}"


def main():
    options = arguments()
    if options.alone:
        return play(options.library, options.alone, options.changed)
    if not options.library.is_file():
        print(f"{options.library} is not there: cargo build -p fullbore-packetdrill")
        return 1
    scripts = options.scripts or sorted((HERE / "scripts").rglob("*.pkt"))
    scripts = [path for path in scripts if not options.k or any(word in str(path) for word in options.k)]
    passed = failed = 0
    for path in scripts:
        problem = problem_of(options.library, path)
        print(f"{'FAIL' if problem is not None else 'ok  '} {path.name}", *filter(None, [problem]), sep="\n  ", flush=True)
        passed, failed = passed + (problem is None), failed + (problem is not None)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
