"""Graphcore's public benchmark programs as a pytest suite: measured, recorded, gated.

In a checkout this folder holds links to the folders of the top level, so that every module has
one name, here and where the project is installed: ``ipubench.plugins``, ``ipubench.fixtures``.
"""

from __future__ import annotations
