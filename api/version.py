"""Which version of Lanewise this is; `pyproject.toml` says the same, and a test sees to it."""

VERSION = "0.1.0"
