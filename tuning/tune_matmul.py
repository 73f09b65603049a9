#!/usr/bin/env python3
"""Tune one matrix product: python tuning/tune_matmul.py 512 768 3072 --trials 50

The winner goes into the user's tuned file (JAXPIPE_CACHE_DIR/tuned/<device>.json), from where
jaxpipe.dot takes it in every later process; every measurement, losers included, goes into
JAXPIPE_CACHE_DIR/measured/<device>.jsonl. Ctrl-C keeps what was measured; the same command again
goes on from there. Same as `python -m jaxpipe tune matmul`.

Examples
  a fused layer on the CPU          tune_matmul.py 512 768 3072 --epilogue bias+gelu_tanh
  attention scores, 12 heads        tune_matmul.py 512 512 64 --batch 12 --layout nt
  bfloat16 on an H200, two minutes  tune_matmul.py 4096 4096 4096 --dtype bfloat16 --seconds 120
  shared with the dashboard         tune_matmul.py 512 768 768 --storage sqlite:///tuning.db
  measured by workers elsewhere     tune_matmul.py 512 768 768 --storage postgresql://... --workers
"""

import sys

from jaxpipe.cli_tune import add_matmul_arguments, run_script

if __name__ == "__main__":
    sys.exit(run_script(str(__doc__), add_matmul_arguments))
