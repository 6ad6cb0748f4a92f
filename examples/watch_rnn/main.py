"""Search for recurrent networks that tell exercises apart by a watch: python main.py [config.cfg]."""

import sys

from data import load_watch_sets, packed_windows
from net import Net, operations, search_space
from torch import nn

from sparsemod import Sparse


def make_sparse(config="config.cfg"):
    datasets, classes, groups = load_watch_sets()
    return Sparse.from_config(
        config,
        datasets=datasets,
        groups=groups,
        classes=classes,
        search_space=search_space(),
        net=Net,
        collate_fn=packed_windows,
        quant_params=[nn.LSTM, nn.GRU, nn.Linear],
        morpher_ops=operations,
    )


def main(config="config.cfg"):
    make_sparse(config).run_sparse()


if __name__ == "__main__":  # workers import this file, so the search must not start on import
    main(*sys.argv[1:])
