"""Eight CPU devices for every test process: sharding is tested without a GPU.

Set before JAX starts its backend; single-device programs still run on the first device.
"""

import os

import pytest

FLAG = "--xla_force_host_platform_device_count=8"
if "xla_force_host_platform_device_count" not in os.environ.get("XLA_FLAGS", ""):
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {FLAG}".strip()


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--update-golden` writes tests/golden instead of comparing with it."""
    parser.addoption("--update-golden", action="store_true", help="rewrite tests/golden")
