"""Which cases exist, and which of them run here."""
