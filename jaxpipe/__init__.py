"""jaxpipe: pipelined matrix products and convolutions for JAX."""

from jaxpipe.version import VERSION as __version__

__all__ = ["__version__"]
