"""A network whose forward is a function of its layers and the input."""

from torch import nn


class FunctionNet(nn.Module):
    def __init__(self, function, **layers):
        super().__init__()
        self.function = function
        for name, layer in layers.items():
            setattr(self, name, layer)

    def forward(self, x):
        return self.function(self, x)
