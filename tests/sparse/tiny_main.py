"""A search as a script: python tiny_main.py ROOT [key=value ...]; values are Python literals."""

import ast
import sys

from tiny_problem import arguments

from sparsemod import Sparse


def main(root, *pairs):
    changes = {}
    for pair in pairs:
        key, _, value = pair.partition("=")
        changes[key] = ast.literal_eval(value)
    Sparse(**arguments(root, **changes)).run_sparse()


if __name__ == "__main__":
    main(*sys.argv[1:])
