"""Test mode: one arm, or those of the front, trained anew over several splits or seeds, and what came out."""
