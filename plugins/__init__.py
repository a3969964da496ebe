"""How a run is chosen, measured, stored, judged and shown."""
