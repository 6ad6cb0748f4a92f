"""What a network costs on a microcontroller: its operators, flash, RAM and time."""
