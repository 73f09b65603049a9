#!/usr/bin/env python3
"""Fit the correction of the host model that jaxpipe ships: python tuning/fit_residual.py

Takes every exhaustive host recording under recorded/ and, with --ledger, measurements of your own.
Writes jaxpipe/data/tuned/residual_host.json (or --out), which problem_space adds to the model.
"""

import argparse
import pathlib

import host_sets
import recorded_hosts

from jaxpipe.residual import fit
from jaxpipe.target import host_device
from jaxpipe.tune.ledger import Ledger

SHIPPED = pathlib.Path(__file__).parent.parent / "jaxpipe" / "data" / "tuned" / "residual_host.json"


def main() -> None:
    """Fit and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ledger", type=pathlib.Path, nargs="*", default=[])
    parser.add_argument("--out", type=pathlib.Path, default=SHIPPED)
    args = parser.parse_args()
    recorded = host_sets.host_records()
    records = [r for rows in recorded.values() for r in rows]
    records += [r for path in args.ledger for r in Ledger(path).read()]
    here = host_device()
    residual = fit(records, {here.name: here, **recorded_hosts.load()}, "host")
    if residual is None:
        raise SystemExit("no records: make some with record_host.py")
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(residual.dumps())
    print(f"{residual.examples} records of {len(recorded)} problems in {args.out}")


if __name__ == "__main__":
    main()
