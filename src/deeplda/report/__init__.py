"""Reports on runs: analysis of the embedding, figures, the HTML page, and a diagnosis in plain words."""
