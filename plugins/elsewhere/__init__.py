"""Other processes that measure: fresh ones, those of another Python, workers."""
