"""Reports that people and other tools read; ``python -m plugins.report`` makes them later."""
