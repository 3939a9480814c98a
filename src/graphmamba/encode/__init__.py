"""Raw columns of a batch -> node rows and edge rows of the model's width."""
