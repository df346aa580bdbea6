"""Recipes, and what is done with many runs."""
