"""Reports that people and other tools read; ``python -m ipubench.plugins.report`` makes them later."""
