#!/usr/bin/env python3
"""Tune one 2-D convolution: python tuning/tune_conv.py 8 56 56 64 64 --kernel 3 --padding 1

Image NHWC, filter HWIO, result NHWC; one group. Files and behaviour are those of tune_matmul.py.
Same as `python -m jaxpipe tune conv`.

Examples
  ResNet-50, 3x3, stride 2   tune_conv.py 8 56 56 128 128 --stride 2 --padding 0 1 0 1
  first layer with ReLU      tune_conv.py 8 224 224 3 64 --kernel 7 --padding 3 --epilogue relu
"""

import sys

from jaxpipe.cli_tune import add_conv_arguments, run_script

if __name__ == "__main__":
    sys.exit(run_script(str(__doc__), add_conv_arguments))
