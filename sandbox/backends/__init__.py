"""How a run is isolated on this machine: bubblewrap, containers, or less where there is nothing
more. The limits of a run are the daemon's.
"""
