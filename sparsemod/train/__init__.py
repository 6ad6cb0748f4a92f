"""Trains a candidate: data, the loop and its hooks, inheritance of weights."""
