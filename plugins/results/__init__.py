"""The results of runs: the lines of a journal, one model, the rows and columns of all tables."""
