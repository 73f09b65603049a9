"""A measuring child that misbehaves on demand: `python -m tests.tune.children`."""

import os
import signal
import sys
import time

from jaxpipe.tune.serve import serve


def seconds_of(schedule):
    """A known landscape: fastest at strip 64, and copying costs a tenth."""
    return 1e-3 * (1 + abs(schedule["strip"] - 64) / 64) * (1.1 if schedule["copy_lhs"] else 1.0)


def handle(request):
    """Measure, or do what the environment says to schedules of one strip."""
    found = [one(schedule) for schedule in request["schedules"]]
    time.sleep(float(os.environ.get("CHILD_SLEEP_S", "0")))
    return {"measurements": found, "versions": {"child": "1"}}


def one(schedule):
    """One measurement in the form of the real child."""
    base = {"status": "ok", "samples_s": [], "baseline_s": [], "reason": "", "max_error": 0.0}
    if str(schedule["strip"]) == os.environ.get("CHILD_BAD_STRIP"):
        act = os.environ["CHILD_ACT"]
        if act == "crash":
            print("about to crash", file=sys.stderr, flush=True)
            os.kill(os.getpid(), signal.SIGSEGV)
        if act == "hang":
            time.sleep(600)
        if act == "wrong":  # the fastest of all, and wrong
            return base | {"status": "wrong_result", "reason": "error is 3 times its limit"}
    print("noise on standard output")
    times = [seconds_of(schedule)] * 3
    return base | {"samples_s": times, "baseline_s": [2e-3] * 3}


if __name__ == "__main__":
    serve(handle)
