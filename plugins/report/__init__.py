"""What people read at the end: terminal, HTML, Markdown, CI.

``python -m ipubench.plugins.report`` makes the files later.
"""
