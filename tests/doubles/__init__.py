"""Stand-ins for the packages of the Poplar SDK, which no registry carries."""
