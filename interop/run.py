#!/usr/bin/env python3
"""Interop: the release binary against real peers, in both roles.

    interop/run.py [-k WORD]... [-j N] [--seed N] [--binary PATH] [--list] [--keep]

Each case runs in a process, a folder and on a loopback address of its own. With CI set, a case whose peer
is missing counts as failed. Expected failures stand in expected.py with their reasons; one that passes is
reported as a failure, so that the list stays true.
"""

import argparse
import concurrent.futures
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import harness  # noqa: E402
from expected import EXPECTED  # noqa: E402


def load_cases():
    import cases_algorithms, cases_client, cases_copy, cases_disk, cases_doctor, cases_duplex, cases_hostile, cases_hostile_server  # noqa: E401,F401
    import cases_udp, cases_files, cases_handshake, cases_hostile_limits, cases_kill, cases_lanes, cases_limits, cases_link, cases_login, cases_rekey, cases_resume, cases_sack, cases_server, cases_serve_rules, cases_tcp  # noqa: E401,F401

    return harness.CASES


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-k", action="append", default=[], metavar="WORD", help="only cases with WORD in the name; may be repeated")
    parser.add_argument("-j", type=int, default=max(2, os.cpu_count() or 2), help="cases at a time")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    parser.add_argument("--binary", type=Path, default=HERE.parent / "target/release/fullbore")
    parser.add_argument("--list", action="store_true", help="print the names and stop")
    parser.add_argument("--keep", action="store_true", help="keep the folders of failed cases")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--number", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--shared", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def run_one(args):
    """The child: one case, exit 0 passed, 77 skipped, 1 failed."""
    case = load_cases()[args.one]
    context = harness.Context(
        binary=args.binary.resolve(), folder=args.folder, shared=args.shared, seed=args.seed, number=args.number
    )
    try:
        case.function(context)
    except harness.Skip as why:
        print(f"skipped: {why}")
        return 77
    except Exception:  # whatever went wrong is this case's failure
        traceback.print_exc()
        return 1
    finally:
        context.close()
    return 0


def run_case(args, case, number, shared):
    folder = Path(tempfile.mkdtemp(prefix="case-", dir=shared))
    command = [sys.executable, __file__, "--one", case.name, "--binary", args.binary, "--seed", str(args.seed)]
    command += ["--shared", shared, "--folder", folder, "--number", str(number)]
    start = time.monotonic()
    log = shared / f"log-{number}"
    with open(log, "wb") as out:
        child = subprocess.Popen(command, stdout=out, stderr=out, stdin=subprocess.DEVNULL, start_new_session=True)
        try:
            code = child.wait(timeout=case.timeout)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            harness.kill_session(child.pid)
            child.wait()
    text = log.read_text(errors="replace")
    if code is None:
        text += f"\ntimed out after {case.timeout} s\n"
    outcome = {0: "passed", 77: "skipped"}.get(code, "failed")
    reason = EXPECTED.get(case.name)
    if reason is not None and outcome == "failed":
        outcome, text = "expected", f"fails as expected: {reason}\n"
    elif reason is not None and outcome == "passed":
        outcome, text = "failed", f"passes, though expected.py says: {reason}\n"
    if outcome == "failed" and args.keep:
        text += f"its folder: {folder}\n"
    else:
        shutil.rmtree(folder, ignore_errors=True)
    return case, outcome, time.monotonic() - start, text


def main():
    args = parse()
    if args.one:
        return run_one(args)
    cases = [c for c in load_cases().values() if not args.k or any(word in c.name for word in args.k)]
    if args.list:
        print("\n".join(c.name for c in cases))
        return 0
    if not args.binary.exists():
        print(f"{args.binary} is missing: cargo build --release")
        return 1
    shared = harness.make_shared_folder()
    print(f"{len(cases)} cases, seed {args.seed}, {args.j} at a time, {shared}", flush=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    counts = {"passed": 0, "failed": 0, "skipped": 0, "expected": 0}
    failures = []
    try:
        harness.make_keys(shared)
        # Cases that want the machine's cores or memory to themselves run last, one at a time.
        groups = [([c for c in cases if not c.alone], args.j), ([c for c in cases if c.alone], 1)]
        number = 0
        for group, workers in groups:
            with concurrent.futures.ThreadPoolExecutor(workers) as pool:
                group = sorted(group, key=lambda c: -c.timeout)
                futures = [pool.submit(run_case, args, c, number + i + 1, shared) for i, c in enumerate(group)]
                number += len(group)
                for future in concurrent.futures.as_completed(futures):
                    case, outcome, seconds, text = future.result()
                    counts[outcome] += 1
                    print(f"{outcome:8} {seconds:6.1f} s  {case.name}", flush=True)
                    if outcome in ("failed", "skipped", "expected"):
                        print("".join(f"    | {line}\n" for line in text.splitlines()[-40:]), end="", flush=True)
                    if outcome == "failed":
                        failures.append(case.name)
    finally:
        if not (args.keep and failures):
            shutil.rmtree(shared, ignore_errors=True)
    if os.environ.get("CI") and counts["skipped"]:
        print(f"CI is set: {counts['skipped']} skipped cases count as failed")
        counts["failed"] += counts["skipped"]
        counts["skipped"] = 0
    for name in failures:
        print(f"failed: {name} (replay: interop/run.py -k {name} --seed {args.seed})")
    print(f"{counts['passed'] + counts['expected']} passed, {counts['failed']} failed, {counts['skipped']} skipped")
    return 1 if counts["failed"] or not counts["passed"] else 0


if __name__ == "__main__":
    sys.exit(main())
