"""The paper's figures and tables recomputed: efficiency, ablations, results."""
