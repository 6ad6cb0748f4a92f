"""Search for networks that tell touches of a pressure grid apart: python main.py [config.cfg]."""

import sys

from data import load_touch_sets, pieces
from net import Net, operations, search_space

from sparsemod import Sparse


def make_sparse(config="config.cfg"):
    datasets, classes, _ = load_touch_sets()
    return Sparse.from_config(
        config,
        datasets=datasets,
        classes=classes,
        search_space=search_space(),
        net=Net,
        collate_fn=pieces,
        morpher_ops=operations,
    )


def main(config="config.cfg"):
    make_sparse(config).run_sparse()


if __name__ == "__main__":  # workers import this file, so the search must not start on import
    main(*sys.argv[1:])
