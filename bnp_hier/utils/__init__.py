"""What every room uses: arrays, files, options, words."""
