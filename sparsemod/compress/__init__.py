"""Makes networks smaller: masks and pruning, quantization, recipes, sensitivity."""
