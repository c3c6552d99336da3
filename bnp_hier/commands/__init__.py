"""The commands of `bnp-hier`, a file each."""
