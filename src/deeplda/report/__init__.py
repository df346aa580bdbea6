"""Reports of runs: the analysis of an embedding, figures, the HTML page, and a diagnosis in plain words."""
