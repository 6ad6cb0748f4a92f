"""Instructions of single operators as counted on emulated cores, and the networks they belong to.

Columns: CMSIS-NN on the M0, M3, M4 and M55.
"""

import re

import torch
from mlperf_nets import Same
from torch import nn

from sparsemod.measure.operators import lower

CORES = ("cortex-m0+", "cortex-m3", "cortex-m4", "cortex-m55")

COUNTED = {
    "conv3x3_28x28x1_8": (1440905, 793400, 794450, 319421),
    "conv3x3_14x14x8_16": (1958895, 864070, 648410, 140679),
    "conv3x3_16x16x16_16": (4457825, 1967725, 1373120, 228769),
    "conv3x3_16x16x32_32": (15813350, 6771390, 4542350, 596964),
    "conv3x3_8x8x64_64": (14938795, 6300730, 4155300, 485398),
    "conv3x3s2_32x32x3_16": (1295355, 602750, 534005, 150304),
    "conv5x5_28x28x1_8": (2599005, 1542540, 1433635, 548378),
    "conv1x1_14x14x16_32": (1220515, 483255, 399575, 107289),
    "conv1x1_25x5x64_64": (3876675, 1591865, 1068935, 202890),
    "conv1x1_14x14x7_9_odd": (253350, 103485, 109250, 31777),
    "conv1d_k3_1x128x8_16": (577030, 252465, 213685, 42859),
    "conv1d_k5_1x128x3_16": (456280, 208330, 198990, 55828),
    "dw3x3_14x14x16": (1063985, 283060, 256565, 97875),
    "dw3x3_25x5x64": (2566520, 674340, 599620, 166882),
    "dw3x3_48x48x8": (6627530, 1796190, 1651120, 863820),
    "dw3x3s2_48x48x16": (3275150, 859675, 771685, 288207),
    "dw5x5_14x14x16": (3008575, 1379385, 874010, 197820),
    "fc_640_128": (506740, 281355, 160050, 40164),
    "fc_128_128": (111475, 60180, 37170, 9445),
    "fc_64_10": (5220, 2845, 1840, 722),
    "fc_784_32": (157055, 89170, 48760, 12324),
    "maxpool2_28x28x16": (524140, 135110, 136005, 34382),
    "avgpool_7x7x64": (68930, 39595, 20585, 4085),
    "add_14x14x32": (1483390, 526935, 509350, 86332),
    "softmax_10": (17870, 4855, 4890, 5246),
    "softmax_100": (189750, 50625, 51015, 54007),
}


class Sum(nn.Module):
    def forward(self, x):
        return x + x


def network(name):
    """Return a network of the operator that a name (``conv3x3s2_32x32x3_16``) stands for, and an input."""
    head, *numbers = name.removesuffix("_odd").split("_")
    if head == "fc":
        inputs, outputs = map(int, numbers)
        return nn.Linear(inputs, outputs), torch.zeros(1, inputs)
    if head == "softmax":
        return nn.Softmax(1), torch.zeros(1, int(numbers[0]))
    if head == "conv1d":
        kernel, inputs, outputs = int(numbers[0][1:]), int(numbers[1].split("x")[2]), int(numbers[2])
        return nn.Conv1d(inputs, outputs, kernel, padding="same"), torch.zeros(1, inputs, 128)
    height, width, channels = map(int, numbers[0].split("x"))
    x = torch.zeros(1, channels, height, width)
    if head.startswith("maxpool"):
        return nn.MaxPool2d(2), x
    if head == "avgpool":
        return nn.AvgPool2d((height, width)), x
    if head == "add":
        return Sum(), x
    kernel, stride = re.fullmatch(r"(?:conv|dw)(\d)x\d(?:s(\d))?", head).groups()
    depthwise = head.startswith("dw")
    outputs = channels if depthwise else int(numbers[1])
    groups = channels if depthwise else 1
    return Same((height, width), channels, outputs, int(kernel), int(stride or 1), groups), x


def lowered_kernel(name):
    graph = lower(*network(name))
    (operator,) = graph.operators
    return graph, operator
