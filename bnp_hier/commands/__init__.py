"""The commands of `bnp-hier`, and the code that they share."""
