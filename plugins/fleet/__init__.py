"""Several hosts that measure one run: each its own cases, alone, and all into one journal."""
