"""The paper's figures and tables made anew: efficiency, ablations, results beside the published."""
