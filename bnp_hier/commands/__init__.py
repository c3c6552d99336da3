"""The commands of `bnp-hier`, and what they share."""
