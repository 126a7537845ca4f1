"""Pictures and cost tables of a model, for a terminal and as one HTML page."""
