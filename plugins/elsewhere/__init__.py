"""A case in another process: fresh, apart, under a profiler, one side of a pair, an instance.

Workers of ``-n`` and hosts are in plugins/fleet: pytest-xdist starts them and speaks with them, and
one worker measures many cases with the device that it keeps.
"""
