"""Recipes, sweeps of many runs, and tables that compare their results with the paper's results."""
