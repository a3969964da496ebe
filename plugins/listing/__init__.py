"""Lists the selected cases or their commands and runs nothing."""
