#!/usr/bin/env python3
"""Tune one 2-D convolution: python tuning/tune_conv.py 8 56 56 64 64 --kernel 3 --padding 1

Image NHWC, filter HWIO, result NHWC; one group. Files and behaviour are those of tune_matmul.py.
Same as `python -m jaxpipe tune conv`.

Examples
  ResNet-50, 3x3, stride 2   tune_conv.py 8 56 56 128 128 --stride 2 --padding 0 1 0 1
  first layer with ReLU      tune_conv.py 8 224 224 3 64 --kernel 7 --padding 3 --epilogue relu
"""

import argparse
import sys

from jaxpipe.cli_tune import add_conv_arguments, run_tuning
from jaxpipe.errors import JaxpipeError


def main() -> int:
    """Parse, tune, print; 1 on a jaxpipe error."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_conv_arguments(parser)
    try:
        return run_tuning(parser.parse_args())
    except JaxpipeError as error:
        print(f"tune_conv: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
