"""The search space: parameters, what is valid, encoding, draws and morphisms."""
