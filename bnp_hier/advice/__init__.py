"""What to run on a table: kinds of columns, checks of a model, a recommendation."""
