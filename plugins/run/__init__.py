"""One session: its journal, its progress and its end."""
