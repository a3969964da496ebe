"""Registers the plugins and the fixtures."""

from __future__ import annotations

from ipubench import PlainImports

PlainImports.install()
pytest_plugins = ["ipubench.plugins"]
