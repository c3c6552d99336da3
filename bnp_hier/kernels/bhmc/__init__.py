"""The moves of `BHMCGibbs`, and what they share."""
