"""How traced PyTorch operations become operators of a microcontroller, a module for each family."""
