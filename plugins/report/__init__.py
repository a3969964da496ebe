"""Reports on a run: terminal, HTML, Markdown, CI.

``python -m ipubench.plugins.report`` makes the files from stored results.
"""
