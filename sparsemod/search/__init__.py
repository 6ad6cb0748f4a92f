"""Proposing what to train next: the strategies of the three stages and the experiment they read."""
