"""jaxpipe's version: part of every kernel key and record."""

VERSION = "0.1.0"
