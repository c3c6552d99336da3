"""Utilities used throughout the package: arrays, files, options and wording."""
