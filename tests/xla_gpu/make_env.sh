#!/usr/bin/env bash
# make_env.sh VENV [PYTHON]: an environment in which XLA:GPU compiles without a GPU (about 1.2 GB).
#
# jax with its CUDA 13 plugin and PJRT library, and nothing else of CUDA: no driver, no cuDNN.
# jaxpipe itself is installed editable, with what its tests need. Then:
#   VENV/bin/python -m pytest -m xla_gpu tests/xla_gpu
set -euo pipefail
venv=${1:?usage: make_env.sh VENV [PYTHON]}
python=${2:-python3}
cd "$(dirname "$0")/../.."
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
pip() { "$venv/bin/python" -m pip --disable-pip-version-check install -q "$@"; }
pip --upgrade pip
pip -e '.[test]'
version=$("$venv/bin/python" -c 'import jax; print(jax.__version__)')
pip "jax-cuda13-plugin==$version" "jax-cuda13-pjrt==$version"
echo "XLA:GPU of jax $version is ready in $venv"
