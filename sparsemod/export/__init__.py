"""Files for microcontrollers, and the check that they keep what was promised."""
