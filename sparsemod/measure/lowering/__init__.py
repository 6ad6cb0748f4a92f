"""How traced PyTorch operations become the operators of a microcontroller runtime, a module for each family."""
