"""Weights and their files: public checkpoint folders, in and out."""
