"""Several workers, on this machine or on hosts, measure one run: each case once, one journal."""
