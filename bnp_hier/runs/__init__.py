"""Runs that can be stopped and resumed, and fits in files."""
