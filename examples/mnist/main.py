"""Search for networks that read MNIST, or tell animals from vehicles: python main.py [config.cfg]."""

import sys

from data import load_image_sets
from net import Net, operations, search_space

from sparsemod import Sparse
from sparsemod.sparse.utils_data import configuration


def make_sparse(config="config.cfg"):
    datasets, classes = load_image_sets(configuration("TRAIN", config)["name"])
    return Sparse.from_config(
        config,
        datasets=datasets,
        classes=classes,
        search_space=search_space(),
        net=Net,
        morpher_ops=operations,
    )


def main(config="config.cfg"):
    make_sparse(config).run_sparse()


if __name__ == "__main__":  # workers import this file, so the search must not start on import
    main(*sys.argv[1:])
