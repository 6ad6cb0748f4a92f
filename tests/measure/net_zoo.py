"""Small networks of every kind that people search over, each with the shape of its input."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_packed_sequence


class Lambda(nn.Module):
    def __init__(self, function, **children):
        super().__init__()
        for name, child in children.items():
            setattr(self, name, child)
        self.function = function

    def forward(self, x):
        return self.function(self, x)


def lambda_net(**children):
    """Make a decorator that turns a forward function into a network with these children."""
    return lambda function: Lambda(function, **children)


ZOO = {}


def zoo(*shape, exact=True):
    def add(build):
        ZOO[build.__name__] = (build, shape, exact)
        return build

    return add


@zoo(1, 3, 16, 16)
def plain_cnn():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 12, 3, stride=2, padding=1),
        nn.BatchNorm2d(12),
        nn.ReLU6(),
        nn.Dropout(),
        nn.Flatten(),
        nn.Linear(192, 10),
        nn.BatchNorm1d(10),
        nn.ReLU(),
        nn.Linear(10, 4),
    )


@zoo(1, 4, 9, 11)
def residual():
    def forward(m, x):
        y = m.b(F.relu(m.a(x)))
        y += m.c(x)
        return m.d(F.relu_(y)).mean([2, 3])

    return Lambda(
        forward,
        a=nn.Conv2d(4, 6, 3, 2, 1),
        b=nn.Sequential(nn.Conv2d(6, 6, 5, padding=2), nn.BatchNorm2d(6)),
        c=nn.Conv2d(4, 6, 1, 2),
        d=nn.Conv2d(6, 5, 1),
    )


@zoo(1, 6, 12, 12)
def depthwise_separable():
    return nn.Sequential(
        nn.Conv2d(6, 6, 3, padding="same", groups=6, bias=False),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.Conv2d(6, 12, 1),
        nn.ReLU6(),
        nn.Conv2d(12, 24, 3, stride=2, groups=12, padding=1),
        nn.Conv2d(24, 8, 3, groups=4, dilation=2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 3),
    )


@zoo(1, 3, 40)
def conv1d():
    return nn.Sequential(
        nn.BatchNorm1d(3),
        nn.Conv1d(3, 8, 5, stride=2, padding=2),
        nn.BatchNorm1d(8),
        nn.ReLU(),
        nn.MaxPool1d(3, 2, 1),
        nn.Conv1d(8, 6, 3, padding=1),
        nn.AvgPool1d(2),
        nn.Flatten(),
        nn.Linear(30, 4),
        nn.LogSoftmax(1),
    )


@zoo(1, 12, 5)
def lstm_last_step():
    return Lambda(lambda m, x: m.f(m.r(x)[0][:, -1]), r=nn.LSTM(5, 7, batch_first=True), f=nn.Linear(7, 3))


@zoo(12, 1, 5)
def lstm_time_first_hidden():
    return Lambda(lambda m, x: m.f(m.r(x)[1][0][-1]), r=nn.LSTM(5, 7, 2), f=nn.Linear(7, 3))


@zoo(1, 12, 5)
def lstm_bidirectional():
    def forward(m, x):
        y, (h, _) = m.r(x)
        return m.f(torch.cat((h[-2], h[-1]), 1)) + m.g(y.mean(1))

    r = nn.LSTM(5, 6, 2, batch_first=True, bidirectional=True)
    return Lambda(forward, r=r, f=nn.Linear(12, 3), g=nn.Linear(12, 3))


@zoo(1, 12, 5)
def gru_all_states():
    def forward(m, x):
        y, h = m.r(x)
        return m.f(h.permute(1, 0, 2).flatten(1)), y

    return Lambda(forward, r=nn.GRU(5, 6, 2, batch_first=True, bidirectional=True), f=nn.Linear(24, 3))


@zoo(1, 12, 5)
def rnn_plain():
    return Lambda(
        lambda m, x: m.r(m.q(x)[0])[0].amax(1),
        q=nn.RNN(5, 6, batch_first=True, nonlinearity="relu", bias=False),
        r=nn.RNN(6, 4, batch_first=True),
    )


@zoo(1, 6, 3)
def lstm_cell_unrolled():
    def forward(m, x):
        h = c = torch.zeros(1, 4)
        for t in range(x.shape[1]):
            h, c = m.r(x[:, t], (h, c))
        return m.f(h)

    return Lambda(forward, r=nn.LSTMCell(3, 4), f=nn.Linear(4, 2))


@zoo(1, 3, 20)
def cnn_lstm():
    def forward(m, x):
        y = m.c(x).relu().transpose(1, 2)
        y, _ = m.r(y)
        return m.f(y[:, -1, :])

    return Lambda(
        forward, c=nn.Conv1d(3, 8, 3, padding=1), r=nn.LSTM(8, 6, batch_first=True), f=nn.Linear(6, 3)
    )


@zoo(1, 5, 2, 8, 8)
def cnn_in_time_lstm():
    def forward(m, x):
        b, t = x.shape[:2]
        y = m.c(x.view(b * t, *x.shape[2:])).relu()
        y = F.max_pool2d(y, 2).reshape(b, t, -1)
        return m.f(m.r(y)[0][:, -1])

    return Lambda(forward, c=nn.Conv2d(2, 4, 3), r=nn.GRU(36, 6, batch_first=True), f=nn.Linear(6, 3))


@zoo(1, 4, 10, 10)
def squeeze_excite():
    def forward(m, x):
        y = F.hardswish(m.a(x))
        s = torch.sigmoid(m.c(F.relu(m.b(F.adaptive_avg_pool2d(y, 1)))))
        y = y * s
        z = F.hardsigmoid(m.d(y.mean((2, 3)))).view(1, -1, 1, 1)
        return (y * z + x.mean()).flatten(1)

    convolutions = {
        "a": nn.Conv2d(4, 8, 3),
        "b": nn.Conv2d(8, 2, 1),
        "c": nn.Conv2d(2, 8, 1),
        "d": nn.Linear(8, 8),
    }
    return Lambda(forward, **convolutions)


@zoo(1, 4, 8, 8)
def inception():
    def forward(m, x):
        branches = [m.a(x), m.b(F.pad(x, (1, 1, 1, 1))), F.avg_pool2d(x, 3, 1, 1), F.max_pool2d(x, 3, 1, 1)]
        y = torch.cat(branches, 1)
        first, second = y.chunk(2, 1)
        y = first * 0.5 - second / 3 + 1
        return torch.cat([y.flatten(1), x[:, :, 0, 0], x[:, 1:3, ::2].flatten(1)], 1)

    return Lambda(forward, a=nn.Conv2d(4, 3, 1), b=nn.Conv2d(4, 5, 3))


@zoo(1, 8, 6, 6)
def channel_shuffle():
    def forward(m, x):
        y = m.a(x).relu()
        n, c, h, w = y.shape
        y = y.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)
        y = m.b(y)
        return F.channel_shuffle(y, 4).flatten(1)

    return Lambda(forward, a=nn.Conv2d(8, 8, 1, groups=2), b=nn.Conv2d(8, 8, 3, groups=8, padding=1))


@zoo(1, 2, 8, 8)
def segmentation():
    def forward(m, x):
        y = m.a(x).relu()
        z = F.interpolate(m.b(F.max_pool2d(y, 2)), scale_factor=2, mode="bilinear")
        z = torch.cat([F.interpolate(z, (8, 8)), m.t(F.max_pool2d(y, 2))], 1)
        return m.c(z)

    return Lambda(
        forward,
        a=nn.Conv2d(2, 4, 3, padding=1),
        b=nn.Conv2d(4, 4, 1),
        t=nn.ConvTranspose2d(4, 3, 3, stride=2, padding=1, output_padding=1),
        c=nn.Conv2d(7, 2, 1),
    )


@zoo(1, 10, 8)
def attention():
    def forward(m, x):
        y, _ = m.a(x, x, x)
        return m.f((x + y).mean(1))

    return Lambda(forward, a=nn.MultiheadAttention(8, 2, batch_first=True), f=nn.Linear(8, 3))


@zoo(1, 3, 7, 9)
def activations():
    def forward(m, x):
        y = m.p(m.a(x))
        y = F.leaky_relu(m.b(y), 0.1) + F.silu(y) + F.elu(y) + F.gelu(y) + y.tanh() + F.hardtanh(y)
        y = y.clamp(min=0) + y.abs().sqrt() + (y**2) + torch.exp(-y) + torch.maximum(y, x[:, :1])
        return F.softmax(y, 1), F.log_softmax(y.permute(0, 2, 3, 1), -1)

    return Lambda(forward, a=nn.Conv2d(3, 4, 1), p=nn.PReLU(4), b=nn.Conv2d(4, 4, 1))


@zoo(1, 3, 8, 8)
def pre_activation():
    def forward(m, x):
        x = (x - m.mean) / m.std
        y = m.c(F.relu(m.n(x)))
        y = y * m.scale + m.bias
        z = y.permute(0, 2, 3, 1).reshape(1, 64, 6) @ m.matrix
        return torch.stack([z[:, 0], z.sum(1)], 1), 1 - y.amax((2, 3), keepdim=True)

    net = Lambda(forward, n=nn.BatchNorm2d(3), c=nn.Conv2d(3, 6, 3, padding=1))
    net.register_buffer("mean", torch.tensor([0.1, 0.2, 0.3]).view(3, 1, 1))
    net.register_buffer("std", torch.tensor([1.5, 2.0, 0.5]).view(3, 1, 1))
    net.scale = nn.Parameter(torch.rand(1, 6, 8, 8))
    net.bias = nn.Parameter(torch.rand(6, 1, 1))
    net.matrix = nn.Parameter(torch.rand(6, 5))
    return net


@zoo(1, 2, 9, 7)
def odd_pools():
    def forward(m, x):
        y = m.c(x)
        a = F.max_pool2d(y, 2, ceil_mode=True)
        b = F.avg_pool2d(y, 3, 2, 1)
        c = F.avg_pool2d(y, 3, 2, 1, count_include_pad=False)
        d = F.max_pool2d(y, 3, 2, 1)
        e = F.adaptive_max_pool2d(y, (3, 1))
        return torch.cat([t.flatten(1) for t in (a, b, c, d, e)], 1)

    return Lambda(forward, c=nn.Conv2d(2, 3, (3, 3), padding=1))


@zoo(1, 96)
def flat_input():
    return Lambda(
        lambda m, x: m.f(m.c(x.view(1, 3, 32)).relu().flatten(1)),
        c=nn.Conv1d(3, 4, 3),
        f=nn.Linear(120, 3),
    )


@zoo(1, 1, 20, 6)
def sensor_window():
    def forward(m, x):
        y = m.c(x).relu()
        y = m.d(y.squeeze(-1)).relu()
        y = m.r(y.permute(2, 0, 1))[0]
        return m.f(y[-1])

    return Lambda(
        forward,
        c=nn.Conv2d(1, 4, (3, 6)),
        d=nn.Conv1d(4, 5, 3),
        r=nn.LSTM(5, 6),
        f=nn.Linear(6, 3),
    )


@zoo(1, 4, 6, 6)
def written_in_place():
    def forward(m, x):
        y = m.c(x)
        z = y.view(1, -1)
        y.relu_()
        out = torch.zeros(1, 3)
        out.copy_(m.f(z))
        out += 1
        return out

    return Lambda(forward, c=nn.Conv2d(4, 2, 1), f=nn.Linear(72, 3))


@zoo(1, 3, 8, 8)
def shared_weights():
    def forward(m, x):
        x = m.c(x).relu()
        x = m.c(x).relu()
        return m.a(m.c(x)), m.b(m.c(x))

    return Lambda(forward, c=nn.Conv2d(3, 3, 3, padding=1), a=nn.BatchNorm2d(3), b=nn.BatchNorm2d(3))


@zoo(1, 3, 30)
def parametrized():
    from torch.nn.utils.parametrizations import weight_norm

    return nn.Sequential(
        weight_norm(nn.Conv1d(3, 4, 3, dilation=2, padding=2)), nn.ReLU(), nn.Flatten(), nn.Linear(120, 2)
    )


@zoo(1, 4, 20)
def causal():
    def forward(m, x):
        x = F.relu(m.a(F.pad(x, (2, 0))))
        return m.f((m.b(x)[:, :, :-4].contiguous() + x)[:, :, -1])

    a, b = nn.Conv1d(4, 4, 3), nn.Conv1d(4, 4, 3, padding=4, dilation=2)
    return Lambda(forward, a=a, b=b, f=nn.Linear(4, 2))


@zoo(1, 2, 6, 6)
def dense_connections():
    def forward(m, x):
        x = torch.cat([x, m.a(x)], 1)
        x = torch.cat([x, m.b(x)], 1)
        return x.mean((2, 3))

    def block(c):
        return nn.Sequential(nn.BatchNorm2d(c), nn.ReLU(), nn.Conv2d(c, 3, 3, padding=1))

    return Lambda(forward, a=block(2), b=block(5))


@zoo(1, 1, 8, 8)
def u_net():
    def forward(m, x):
        a = m.d(x).relu()
        b = m.m(F.max_pool2d(a, 2)).relu()
        return m.o(torch.cat([m.u(b), a], 1)).log_softmax(1)

    return Lambda(
        forward,
        d=nn.Conv2d(1, 4, 3, padding=1),
        m=nn.Conv2d(4, 8, 3, padding=1),
        u=nn.ConvTranspose2d(8, 4, 2, 2),
        o=nn.Conv2d(8, 2, 1),
    )


@zoo(1, 7, 4)
def attentive_rnn():
    def forward(m, x):
        y, _ = m.r(x, torch.zeros(2, x.size(0), 6, device=x.device))
        w = torch.softmax(m.a(y), 1)
        return m.f((w * y).sum(1) + torch.bmm(w.transpose(1, 2), y).squeeze(1))

    r = nn.GRU(4, 6, batch_first=True, bidirectional=True)
    return Lambda(forward, r=r, a=nn.Linear(12, 1), f=nn.Linear(12, 3))


@zoo(1, 6, 4, 4)
def joined_features():
    def forward(m, x):
        a = m.a(x).view(1, 2, 3, 16).transpose(2, 3).reshape(1, 96, 1)
        b = m.b(x).view(1, 3, 2, 16).transpose(2, 3).reshape(1, 96, 1)
        return torch.cat([a, b], 2), torch.stack([a, b], 1), torch.cat([a, b], 1)

    return Lambda(forward, a=nn.Conv2d(6, 6, 1), b=nn.Conv2d(6, 6, 1))


@zoo(1, 5, 16, exact=False)
def normalised():
    return nn.Sequential(
        nn.Linear(16, 8), nn.LayerNorm(8), nn.GELU(), nn.GroupNorm(1, 5), nn.Flatten(), nn.Linear(40, 2)
    )


class Packed(nn.Module):
    def __init__(self):
        super().__init__()
        self.r = nn.LSTM(4, 6, batch_first=True, num_layers=2)
        self.f = nn.Linear(6, 3)

    def forward(self, x):
        y, (h, _) = self.r(x)
        y, _ = pad_packed_sequence(y, batch_first=True)
        return self.f(h[-1]) + self.f(y[torch.arange(len(y)), -1])


def built(name, seed=0):
    """Return a network of the zoo, its normalisations away from the identity, and an input."""
    build, shape, _ = ZOO[name]
    torch.manual_seed(seed)
    net = build()
    with torch.no_grad():
        for module in net.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                module.weight.uniform_(0.5, 2)
                module.bias.normal_()
                module.running_mean.normal_()
                module.running_var.uniform_(0.5, 2)
    return net, torch.randn(shape)
