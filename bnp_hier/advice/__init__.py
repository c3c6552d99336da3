"""Advice on a table: the kinds of its columns, checks of a model, and a recommendation of methods."""
