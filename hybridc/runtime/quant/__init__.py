"""Numbers of few bits: element formats, scales, recipes, and the products of matrices that they are made for."""
