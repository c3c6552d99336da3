"""The moves of `BHMCGibbs`, a file each."""
