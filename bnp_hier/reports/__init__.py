"""HTML reports on comparisons, and pages of trees."""
