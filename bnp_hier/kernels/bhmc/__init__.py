"""The moves of `BHMCGibbs`, and the code that they share."""
