"""Results of many revisions, and where their level changed."""
