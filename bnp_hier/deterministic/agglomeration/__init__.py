"""Greedy agglomeration and the search for better trees."""
