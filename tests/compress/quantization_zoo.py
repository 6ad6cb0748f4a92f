"""Networks in the styles people write them in, each with inputs: (name, network, inputs)."""

import torch
from torch import nn
from torch.ao.nn.quantized import FloatFunctional
from torch.ao.quantization import DeQuantStub, QuantStub
from torch.nn import functional as F
from torch.nn.utils import parametrizations
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

N = 256


class LeNet(nn.Module):
    """Functional style: activation behind the pool, dropout, log softmax."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 5, padding=2)
        self.conv2 = nn.Conv2d(6, 12, 5)
        self.fc1 = nn.Linear(12 * 4, 24)
        self.fc2 = nn.Linear(24, 10)

    def forward(self, x):
        x = F.relu(F.max_pool2d(self.conv1(x), 2))
        x = F.relu(F.max_pool2d(F.dropout2d(self.conv2(x), training=self.training), 2))
        x = F.dropout(torch.relu(self.fc1(x.view(-1, 12 * 4))), training=self.training)
        return F.log_softmax(self.fc2(x), dim=1)


class BasicBlock(nn.Module):
    """The residual block of torchvision, in-place ReLU and in-place addition."""

    def __init__(self, inputs, outputs, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x):
        identity = x
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        if self.downsample is not None:
            identity = self.downsample(x)
        out += identity
        return self.relu(out)


class InvertedResidual(nn.Module):
    def __init__(self, channels, expansion=3):
        super().__init__()
        hidden = channels * expansion
        self.body = nn.Sequential(
            nn.Conv2d(channels, hidden, 1, bias=False),
            nn.BatchNorm2d(hidden),
            nn.ReLU6(inplace=True),
            nn.Conv2d(hidden, hidden, 3, 1, 1, groups=hidden, bias=False),
            nn.BatchNorm2d(hidden),
            nn.ReLU6(inplace=True),
            nn.Conv2d(hidden, channels, 1, bias=False),
            nn.BatchNorm2d(channels),
        )

    def forward(self, x):
        return x + self.body(x)


class EagerStubs(nn.Module):
    """Written for PyTorch's eager quantization."""

    def __init__(self):
        super().__init__()
        self.quant, self.dequant = QuantStub(), DeQuantStub()
        self.conv1 = nn.Sequential(nn.Conv2d(2, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.conv2 = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8))
        self.skip, self.join = FloatFunctional(), FloatFunctional()
        self.classifier = nn.Linear(16, 5)

    def fuse_model(self):
        raise AssertionError("must not be needed")

    def forward(self, x):
        x = self.conv1(self.quant(x))
        y = self.skip.add_relu(self.conv2(x), x)
        out = self.join.cat([x, y], dim=1).mean([2, 3])
        return self.dequant(self.classifier(out))


class Dense(nn.Module):
    """DenseNet's concatenations."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Conv2d(2 + 4 * i, 4, 3, padding=1) for i in range(4)])
        self.head = nn.Conv2d(18, 5, 1)

    def forward(self, x):
        for layer in self.layers:
            x = torch.cat([x, F.relu(layer(x))], 1)
        return F.adaptive_avg_pool2d(self.head(x), 1).flatten(1)


class Inception(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Conv2d(2, 4, 1)
        self.b = nn.Conv2d(2, 4, 3, padding=1)
        self.c = nn.Conv2d(2, 4, 5, padding=2)
        self.pool = nn.AvgPool2d(3, 1, 1)
        self.head = nn.Linear(14 * 36, 5)

    def forward(self, x):
        branches = [F.relu(self.a(x)), F.relu(self.b(x)), F.relu(self.c(x)), self.pool(x)]
        return self.head(F.max_pool2d(torch.cat(branches, dim=1), 2).flatten(1))


class Squeeze(nn.Module):
    """Squeeze and excitation, hard swish, hard sigmoid."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 8, 3, padding=1)
        self.down, self.up = nn.Conv2d(8, 4, 1), nn.Conv2d(4, 8, 1)
        self.act = nn.Hardswish()
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        x = self.act(self.conv(x))
        gate = F.adaptive_avg_pool2d(x, 1)
        gate = torch.sigmoid(self.up(F.relu(self.down(gate))))
        return self.head((x * gate).mean((2, 3)))


class Shuffle(nn.Module):
    """Chunks, channel shuffle by reshape, strided slices."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(2, 8, 3, padding=1)
        self.branch = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1, groups=4), nn.BatchNorm2d(4), nn.ReLU())
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        a, b = self.stem(x).chunk(2, dim=1)
        x = torch.cat((a, self.branch(b)), dim=1)
        n, c, h, w = x.size()
        x = x.view(n, 2, c // 2, h, w).transpose(1, 2).contiguous().view(n, c, h, w)
        return self.head(x[:, :, ::2, ::2].mean(3).mean(2))


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Conv2d(2, 8, 3, stride=2, padding=1)
        self.middle = nn.Conv2d(8, 8, 3, padding=1)
        self.up = nn.ConvTranspose2d(8, 4, 2, stride=2)
        self.grouped = nn.ConvTranspose2d(4, 4, 3, padding=1, groups=2)
        self.out = nn.Conv2d(4 + 8 + 2, 3, 1)

    def forward(self, x):
        low = F.leaky_relu(self.down(x), 0.1)
        up = self.grouped(F.relu(self.up(F.elu(self.middle(low)))))
        wide = F.interpolate(low, scale_factor=2, mode="bilinear")
        return self.out(torch.cat([up, wide, x], 1))


class PreActivation(nn.Module):
    """Batch norms with nothing to fold into."""

    def __init__(self):
        super().__init__()
        self.bn0, self.bn1, self.bn2 = nn.BatchNorm2d(2), nn.BatchNorm2d(8), nn.BatchNorm1d(8)
        self.conv0, self.conv1 = nn.Conv2d(2, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        x = self.conv0(self.bn0(x))
        x = x + self.conv1(F.relu(self.bn1(x)))
        return self.head(self.bn2(F.avg_pool2d(x, 12).squeeze(-1).squeeze(-1)))


class Conv1d(nn.Module):
    """(batch, time, features) in, dilated convolutions, asymmetric padding."""

    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList([nn.Conv1d(6 if i == 0 else 12, 12, 3, dilation=2**i) for i in range(3)])
        self.norms = nn.ModuleList([nn.BatchNorm1d(12) for _ in range(3)])
        self.head = nn.Sequential(nn.AdaptiveMaxPool1d(1), nn.Flatten(), nn.Linear(12, 5), nn.Softmax(dim=-1))

    def forward(self, x):
        x = x.permute(0, 2, 1)
        for i, (conv, norm) in enumerate(zip(self.convs, self.norms, strict=True)):
            x = norm(conv(F.pad(x, (2 * 2**i, 0)))).relu_()
        return self.head(x)


class Recurrent(nn.Module):
    """A recurrent layer over whole or packed sequences, last output or mean."""

    def __init__(self, kind, packed_output="last", **options):
        super().__init__()
        self.rnn = kind(6, 16, batch_first=True, **options)
        self.head = nn.Linear(16 * (1 + self.rnn.bidirectional), 5)
        self.use = packed_output

    def forward(self, x):
        output, hidden = self.rnn(x)
        if isinstance(output, PackedSequence):
            output, _ = pad_packed_sequence(output, batch_first=True)
        if self.use == "hidden":
            hidden = hidden[0] if isinstance(hidden, tuple) else hidden
            last = torch.cat([hidden[-2], hidden[-1]], 1) if self.rnn.bidirectional else hidden[-1]
        else:
            last = output[:, -1] if self.use == "last" else output.mean(1)
        return self.head(F.dropout(last, 0.5, self.training))


class Cells(nn.Module):
    """Cells in a Python loop."""

    def __init__(self, kind):
        super().__init__()
        self.cell = kind(6, 12)
        self.head = nn.Linear(12, 5)

    def forward(self, x):
        state = None
        for t in range(x.shape[1]):
            state = self.cell(x[:, t], state)
        return self.head(state[0] if isinstance(state, tuple) else state)


class ConvLSTM(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(6, 8, 3, padding="same")
        self.norm = nn.BatchNorm1d(8)
        self.rnn = nn.LSTM(8, 12)
        self.head = nn.Linear(12, 5)

    def forward(self, x):
        x = F.max_pool1d(F.relu(self.norm(self.conv(x.transpose(1, 2)))), 2)
        output, _ = self.rnn(x.permute(2, 0, 1))
        return self.head(output[-1])


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(6, 16)
        self.position = nn.Parameter(torch.randn(1, 12, 16) * 0.3)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.head = nn.Linear(16, 5)

    def forward(self, x):
        return self.head(self.layer(self.embed(x) + self.position).mean(dim=1))


class Shared(nn.Module):
    """One layer used in a loop and one weight used by two operators."""

    def __init__(self):
        super().__init__()
        self.enter = nn.Linear(6, 16)
        self.again = nn.Linear(16, 16)
        self.norm = nn.BatchNorm1d(16)

    def forward(self, x):
        x = torch.tanh(self.enter(x))
        for _ in range(3):
            x = F.relu(self.norm(self.again(x)))
        return F.linear(x, self.enter.weight.t())


class RawParameters(nn.Module):
    """No modules at all; constants, scalars, in-place arithmetic, assignment to slices."""

    def __init__(self):
        super().__init__()
        self.w1 = nn.Parameter(torch.randn(6, 16) * 0.4)
        self.b1 = nn.Parameter(torch.randn(16) * 0.1)
        self.w2 = nn.Parameter(torch.randn(16, 5) * 0.3)
        self.register_buffer("mean", torch.linspace(-0.2, 0.2, 6))

    def forward(self, x):
        x = (x - self.mean) / 1.5
        x = x @ self.w1 + self.b1
        x.clamp_(min=0)
        x[:, :4] += 0.25 * x[:, 4:8]
        x = 1 - x
        x *= 2
        return torch.addmm(torch.zeros(5), x, self.w2)


class Text(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(20, 8)
        self.rnn = nn.GRU(8, 12, batch_first=True)
        self.head = nn.Linear(12, 5)

    def forward(self, tokens):
        return self.head(self.rnn(self.embedding(tokens))[1].squeeze(0))


class Bytes(nn.Module):
    """Takes images of bytes."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 6, 3, stride=2)
        self.head = nn.Linear(6, 5)

    def forward(self, x):
        x = x.float() / 255.0
        return self.head(F.relu(self.conv(x)).amax((2, 3)))


class TwoInputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.image = nn.Sequential(nn.Conv2d(2, 6, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.vector = nn.Sequential(nn.Linear(6, 6), nn.Tanh())
        self.head = nn.Linear(12, 5)

    def forward(self, pair):
        image, vector = pair
        return self.head(torch.hstack([self.image(image), self.vector(vector)]))


def mlp():
    return nn.Sequential(
        nn.Linear(6, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.3),
        nn.Linear(32, 16), nn.Hardtanh(), nn.Linear(16, 16), nn.GELU(), nn.Linear(16, 5),
    )  # fmt: skip


def resnet():
    return nn.Sequential(
        nn.Conv2d(2, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True),
        BasicBlock(8, 8), BasicBlock(8, 16, 2), nn.AdaptiveAvgPool2d((1, 1)), nn.Flatten(), nn.Linear(16, 5),
    )  # fmt: skip


def mobile():
    return nn.Sequential(
        nn.Conv2d(2, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU6(), InvertedResidual(8), InvertedResidual(8),
        nn.AvgPool2d(6), nn.Flatten(), nn.Linear(8, 5),
    )  # fmt: skip


def weight_normed():
    return nn.Sequential(
        parametrizations.weight_norm(nn.Conv2d(2, 8, 3)), nn.PReLU(8), nn.Flatten(1),
        parametrizations.spectral_norm(nn.Linear(800, 5)),
    )  # fmt: skip


def zoo():
    """Return (name, trained-looking network in training mode, calibration inputs) of every style."""
    images, small, sequences = torch.randn(N, 2, 12, 12), torch.randn(N, 1, 16, 16), torch.randn(N, 12, 6)
    vectors = torch.randn(N, 6)
    lengths = torch.randint(1, 13, (N,))
    packed = pack_padded_sequence(sequences, lengths, batch_first=True, enforce_sorted=False)
    nets = [
        ("mlp", mlp(), vectors),
        ("lenet", LeNet(), small),
        ("resnet", resnet(), images),
        ("mobile", mobile(), images),
        ("eager_stubs", EagerStubs(), images),
        ("dense", Dense(), images),
        ("inception", Inception(), images),
        ("squeeze", Squeeze(), images),
        ("shuffle", Shuffle(), images),
        ("unet", UNet(), images),
        ("pre_activation", PreActivation(), images),
        ("weight_normed", weight_normed(), images),
        ("conv1d", Conv1d(), sequences),
        ("lstm", Recurrent(nn.LSTM), sequences),
        ("lstm_packed", Recurrent(nn.LSTM, "hidden", num_layers=2), packed),
        ("lstm_bidirectional_packed", Recurrent(nn.LSTM, "hidden", bidirectional=True), packed),
        ("gru_bidirectional", Recurrent(nn.GRU, "mean", bidirectional=True), sequences),
        ("gru_packed", Recurrent(nn.GRU, "mean"), packed),
        ("rnn_relu", Recurrent(nn.RNN, "last", nonlinearity="relu", bias=False), sequences),
        ("lstm_cells", Cells(nn.LSTMCell), sequences),
        ("gru_cells", Cells(nn.GRUCell), sequences),
        ("conv_lstm", ConvLSTM(), sequences),
        ("attention", Attention(), sequences),
        ("shared", Shared(), vectors),
        ("raw_parameters", RawParameters(), vectors),
        ("text", Text(), torch.randint(0, 20, (N, 7))),
        ("bytes", Bytes(), torch.randint(0, 256, (N, 1, 9, 9), dtype=torch.uint8)),
        ("two_inputs", TwoInputs(), (images, vectors)),
    ]
    for _, net, inputs in nets:
        settle(net, inputs)
    return nets


def settle(net, inputs):
    """Give batch norms statistics and parameters as training would."""
    for module in net.modules():
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias, 0.0, 0.2)
            module.momentum = None
    with torch.no_grad():
        for _ in range(3):
            net(inputs)
