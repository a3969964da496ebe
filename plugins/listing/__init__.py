"""Lists the selected cases, or their commands, without running them."""
