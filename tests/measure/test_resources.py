import pytest
import torch
from mlperf_nets import lowered
from net_zoo import Lambda
from torch import nn

from sparsemod.measure.operators import lower
from sparsemod.measure.resources import arena, measure
from sparsemod.measure.targets import find_target, generic

GENERIC = generic(1e6)


def ram(net, shape, runtime="tflite-micro", **arguments):
    return measure(lower(net, torch.zeros(shape), **arguments), GENERIC, runtime).working_memory_bytes


def test_a_residual_stays_in_ram_while_the_branch_is_computed():
    class Block(nn.Module):
        def __init__(self, residual):
            super().__init__()
            self.a, self.b, self.residual = (
                nn.Conv2d(8, 8, 3, padding=1),
                nn.Conv2d(8, 8, 3, padding=1),
                residual,
            )

        def forward(self, x):
            y = self.b(self.a(x))
            return y + x if self.residual else y

    n = 16 * 16 * 8
    assert ram(Block(False), (1, 8, 16, 16)) == 2 * n
    assert ram(Block(True), (1, 8, 16, 16)) == 3 * n


def test_ram_is_not_that_of_the_largest_module():
    net = Lambda(
        lambda m, x: torch.cat([m.a(x), m.b(x), m.c(x)], 1),
        a=nn.Conv2d(2, 4, 1),
        b=nn.Conv2d(2, 4, 1),
        c=nn.Conv2d(2, 4, 1),
    )
    n = 8 * 8 * 4
    # while they are joined, the three branches and the result live; the input is gone
    assert ram(net, (1, 2, 8, 8)) == 2 * 3 * n


def test_the_input_is_counted():
    graph = lower(nn.Sequential(nn.Conv2d(3, 1, 3, stride=2), nn.Flatten()), torch.zeros(1, 3, 224, 224))
    assert graph.tensors[0].n_bytes == 150528
    # and 111 x 111, and two columns of 27, aligned
    assert measure(graph, GENERIC, "c").working_memory_bytes == 150528 + 12336 + 64


def test_float_activations_are_four_times_as_large():
    net = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 16))
    assert ram(net, (1, 64)) == 96
    assert ram(net, (1, 64), scheme="none") == 384


def test_a_reshape_shares_its_buffer_only_in_the_c_runtime():
    net = Lambda(
        lambda m, x: m.r(m.c(x).transpose(1, 2))[0][:, -1],
        c=nn.Conv1d(4, 64, 1),
        r=nn.LSTM(64, 4, batch_first=True),
    )
    graph = lower(net, torch.zeros(1, 4, 32))
    assert [operator.kind for operator in graph.operators][:2] == ["conv_2d", "reshape"]
    n = 32 * 64
    scratch = 48  # 4 gates and a cell state of 4 int16, a state of 4 int8, aligned
    assert arena(graph, "c").n_bytes == n + 128 + scratch
    assert arena(graph, "tflite-micro").n_bytes == 2 * n


def test_kernels_of_the_target_get_their_scratch_memory():
    net = nn.Conv2d(16, 16, 3, padding=1)
    graph = lower(net, torch.zeros(1, 16, 8, 8))
    plain = measure(graph, GENERIC, "tflite-micro").working_memory_bytes
    assert plain == 2 * 8 * 8 * 16
    board = measure(graph, find_target("STM32F446"), "tflite-micro").working_memory_bytes
    assert board == plain + 4 * 9 * 16
    # a bundle has the same kernels on all cores: two columns of the input
    assert {arena(graph, "c", core).n_bytes for core in ("generic", "cortex-m4")} == {plain + 2 * 9 * 16}


def test_a_convolution_gathers_columns_unless_they_lie_in_its_input():
    def bytes_of(*arguments, **kinds):
        return arena(lower(nn.Conv1d(*arguments, **kinds), torch.zeros(1, 8, 32)), "c").n_bytes

    n = 2 * 8 * 32
    assert bytes_of(8, 8, 1) == n
    assert bytes_of(8, 8, 3) == 8 * 32 + 8 * 30  # one row, nothing around it: where a column begins, it is
    assert bytes_of(8, 8, 3, padding=1) == n + 2 * 3 * 8
    assert bytes_of(8, 8, 3, padding=2, dilation=2) == n + 2 * 3 * 8
    assert bytes_of(8, 8, 1, groups=2) == n + 16  # two columns of 4 in steps of 16 bytes


def test_a_sparse_convolution_keeps_the_weights_of_a_channel_as_a_list():
    convolution = nn.Conv2d(16, 8, 3, padding=1)
    depthwise = nn.Conv2d(16, 16, 3, padding=1, groups=16)
    with torch.no_grad():
        for layer in (convolution, depthwise):
            layer.weight.fill_(1)
            layer.weight[:, :, 0] = 0
    scratch = [
        arena(lower(layer, torch.zeros(1, 16, 8, 8)), "c").n_bytes - 8 * 8 * (16 + layer.out_channels)
        for layer in (convolution, depthwise)
    ]
    # 10 places twice and 144 weights in 32 bits; sums of a row of 8, three rows of 10 in 16 bits, 9 weights
    assert scratch == [4 * (20 + 144), 112]
    assert 4 * 8 + 2 * 3 * 10 + 9 == 101


def test_a_recurrent_layer_needs_its_state_and_gates():
    graph = lower(Lambda(lambda m, x: m.r(x)[0], r=nn.LSTM(16, 32)), torch.zeros(10, 1, 16))
    tensors, gates, state = 160 + 320, 4 * 2 * 32, 3 * 32
    assert arena(graph, "tflite-micro").n_bytes == tensors + gates  # its state is the interpreter's
    assert arena(graph, "c").n_bytes == tensors + gates + state


def test_pruning_makes_the_model_smaller_in_the_c_runtime():
    net = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(576, 10))
    nn.init.ones_(net[0].bias)  # so that no channel dies
    sizes = []
    for share in (0.0, 0.5, 0.9):
        with torch.no_grad():
            for layer in (net[0], net[3]):
                threshold = (
                    layer.weight.abs().flatten().kthvalue(max(1, int(share * layer.weight.numel()))).values
                )
                layer.weight[layer.weight.abs() < threshold] = 0
        graph = lower(net, torch.zeros(1, 3, 8, 8))
        sizes.append(measure(graph, GENERIC, "c"))
    assert sizes[0].model_size_bytes > sizes[1].model_size_bytes > sizes[2].model_size_bytes
    assert sizes[2].model_size_bytes < 0.35 * sizes[0].model_size_bytes
    assert sizes[2].model_size_tflite_bytes == sizes[0].model_size_tflite_bytes
    assert sizes[2].n_nonzero < 0.15 * sizes[0].n_nonzero


def test_both_sizes_are_reported_and_the_runtime_chooses():
    graph = lower(nn.Linear(10, 4), torch.zeros(1, 10))
    c, tflite = (measure(graph, GENERIC, runtime) for runtime in ("c", "tflite-micro"))
    assert c.model_size_bytes == c.model_size_c_bytes == tflite.model_size_c_bytes == 40 + 16 + 20
    assert tflite.model_size_bytes == c.model_size_tflite_bytes == 40 + 16 + 16
    assert c.n_parameters == 44
    assert c.n_macs == 40


def test_the_parts_of_the_size_and_the_memory_beside_the_activations():
    graph = lower(nn.Linear(10, 4), torch.zeros(1, 10))
    c, tflite = (measure(graph, GENERIC, runtime) for runtime in ("c", "tflite-micro"))
    for resources in (c, tflite):
        parts = [getattr(resources, f"tflite_{part}_bytes") for part in ("weight", "bias", "scale")]
        assert parts == [40, 16, 16]
        assert resources.file_bytes is None
    assert (c.tail_bytes, tflite.tail_bytes) == (None, 4 * 73 - 62 + 265)  # two tensors, two constants
    assert tflite.scratch_bytes == 0


def test_scratch_memory_is_that_of_the_operator_with_the_most():
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 5))
    resources = measure(lower(net, torch.zeros(1, 3, 12, 12)), find_target("STM32F446"), "tflite-micro")
    assert resources.scratch_bytes == 4 * 5 * 5 * 4  # two columns of int16 of the second convolution


def test_the_two_models_of_the_sparse_paper():
    net = nn.Sequential(nn.Linear(100, 20, bias=False), nn.Linear(20, 30, bias=False))
    with torch.no_grad():
        net[0].weight[:, 1:] = 0
        net[0].weight[:, 0] = 1
        net[1].weight[:] = 1
        graph = lower(net, torch.zeros(1, 100), scheme="post")
    resources = measure(graph, GENERIC, "c")
    assert resources.working_memory_inputs_weights_bytes == 20 + 600  # 100 + 20 for the first, pruned layer
    assert resources.working_memory_inputs_outputs_bytes == 120


# Parameters, multiply-accumulates, arena of the interpreter on a host and on a Cortex-M4, bytes of constants
# in the file, 8 of which are the shape that its reshape operator is given.
MLPERF = {
    "kws": (22604, 2656768, 16000, 16000, 24376 - 8),
    "ic": (77706, 12501632, 49152, 49728, 78752 - 8),
    "vww": (210850, 7489664, 73728, 73728, 219072 - 8),
    "ad": (265864, 264192, 768, 768, 270880),
    "sww": (46883, 826368, 6656, 7936, 49420 - 8),
}


@pytest.mark.parametrize("name", MLPERF)
def test_the_mlperf_tiny_models_are_measured_as_the_interpreter_does(name):
    n_parameters, n_macs, host, cortex_m4, weight_bytes = MLPERF[name]
    graph = lowered(name)
    resources = measure(graph, GENERIC, "tflite-micro")
    assert resources.n_parameters == n_parameters
    assert resources.n_macs == n_macs
    assert resources.working_memory_bytes == host
    assert arena(graph, "tflite-micro", "cortex-m4").n_bytes == cortex_m4
    scales = sum(weight.n_scales for weight in graph.weights())
    assert resources.model_size_tflite_bytes == weight_bytes + 4 * scales
    assert not [operator for operator in graph.operators if operator.kind in {"pad", "transpose", "reshape"}]
