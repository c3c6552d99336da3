"""Looking inside a user's NumPyro model: its sites, what they say, and the problem an estimator is handed."""
