"""Parameters under a live mask."""

import copy
import pickle

import pytest
import torch
from torch import nn
from torch.nn.utils import prune

from sparsemod.compress.masked import (
    follow_state,
    live_masks,
    mask_of,
    parameter_of,
    permanent_state,
    refresh,
    remove_masks,
    restore_masks,
    set_masks,
)
from sparsemod.compress.quantization import quantize

CHECKERED = torch.tensor([[True, False, True, False], [False, True, False, True]])


def layer(**options):
    torch.manual_seed(0)
    return nn.Linear(4, 2, **options)


def masked(mask=CHECKERED, net=None):
    net = net or layer()
    set_masks(net, [(net, "weight", mask)])
    return net


def test_the_weight_is_the_parameter_times_the_mask_and_gradients_pass_where_it_is_1():
    net = masked()
    assert torch.equal(net.weight, net.weight_orig * CHECKERED)
    net(torch.ones(1, 4)).sum().backward()
    assert torch.equal(net.weight_orig.grad, CHECKERED.float())
    assert torch.equal(mask_of(net, "weight"), CHECKERED)
    assert parameter_of(net, "weight") is net.weight_orig


def test_the_weight_follows_the_optimizer_at_the_next_forward_and_refresh():
    net = masked()
    with torch.no_grad():
        net.weight_orig.fill_(2.0)
    assert net(torch.ones(1, 4))[0].tolist() == pytest.approx((4 + net.bias).tolist())
    with torch.no_grad():
        net.weight_orig.fill_(3.0)
    refresh(net)
    assert torch.equal(net.weight, 3.0 * CHECKERED)


def test_a_mask_is_replaced_by_the_next_one():
    net = masked()
    n_hooks = len(net._forward_pre_hooks)
    set_masks(net, [(net, "weight", ~CHECKERED)])
    assert torch.equal(net.weight, net.weight_orig * ~CHECKERED)
    assert len(net._forward_pre_hooks) == n_hooks


def test_parameters_stay_the_same_objects_in_the_same_order():
    net = nn.Sequential(layer(), nn.Linear(2, 2))
    before = list(net.parameters())
    set_masks(net, [(net[0], "weight", CHECKERED), (net[1], "bias", torch.tensor([1, 0]))])
    assert [id(p) for p in net.parameters()] == [id(p) for p in before]
    assert [name for name, _ in net.named_parameters()] == [
        "0.weight_orig",
        "0.bias",
        "1.weight",
        "1.bias_orig",
    ]
    remove_masks(net)
    assert [id(p) for p in net.parameters()] == [id(p) for p in before]
    assert [name for name, _ in net.named_parameters()] == ["0.weight", "0.bias", "1.weight", "1.bias"]


def test_a_wrong_mask_names_what_is_wrong():
    net = layer(bias=False)
    with pytest.raises(ValueError, match=r"mask of shape \(2,\) for 'weight' .* which has shape \(2, 4\)"):
        set_masks(net, [(net, "weight", torch.ones(2))])
    with pytest.raises(ValueError, match=r"'bias' .* which has no parameter there"):
        set_masks(net, [(net, "bias", torch.ones(2))])


@pytest.mark.parametrize(
    "do", [copy.deepcopy, lambda net: pickle.loads(pickle.dumps(net))], ids=["copy", "pickle"]
)
def test_a_masked_module_can_be_copied_and_lives_on(do):
    net = masked()
    net(torch.ones(1, 4)).sum().backward()
    twin = do(net)
    assert torch.equal(twin.weight, net.weight)
    with torch.no_grad():
        twin.weight_orig.fill_(1.0)
    twin(torch.ones(1, 4)).sum().backward()
    assert torch.equal(twin.weight, CHECKERED.float())
    assert not torch.equal(net.weight_orig, twin.weight_orig)


# With torch.nn.utils.prune


def test_torch_sees_and_removes_the_masks():
    net = masked()
    assert prune.is_pruned(net)
    expected = net.weight.detach().clone()
    prune.remove(net, "weight")
    assert not prune.is_pruned(net)
    assert torch.equal(net.weight, expected)
    assert isinstance(net.weight, nn.Parameter)


def test_masks_of_torch_are_taken_over_and_removed():
    net = layer()
    prune.l1_unstructured(net, "weight", 2)
    prune.l1_unstructured(net, "weight", 1)
    assert int(live_masks(net)["weight"].sum()) == 5
    set_masks(net, [(net, "weight", CHECKERED)])
    net(torch.ones(1, 4))
    assert torch.equal(net.weight, net.weight_orig * CHECKERED)
    remove_masks(net)
    assert not prune.is_pruned(net)
    assert int((net.weight == 0).sum()) == 4


# Removing


def test_removing_walks_containers_and_leaves_the_rest_alone():  # NVIDIA/retinanet-examples 257
    net = nn.ModuleDict({"a": nn.Sequential(layer(), nn.ReLU()), "b": nn.ModuleList([layer()])})
    set_masks(net, [(net["a"][0], "weight", CHECKERED)])
    remove_masks(net)
    assert int((net["a"][0].weight == 0).sum()) == 4
    assert int((net["b"][0].weight == 0).sum()) == 0
    assert live_masks(net) == {}
    remove_masks(net)


def test_a_recurrent_layer_is_masked_and_trains_on_when_the_masks_are_gone():  # pytorch 33618
    torch.manual_seed(0)
    net = nn.LSTM(3, 4)
    x = torch.randn(5, 2, 3)
    mask = torch.rand(16, 3) > 0.5
    expected = copy.deepcopy(net)
    with torch.no_grad():
        expected.weight_ih_l0.mul_(mask)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    set_masks(net, [(net, "weight_ih_l0", mask)])
    assert torch.equal(net(x)[0], expected(x)[0])
    net(x)[0].sum().backward()
    assert torch.equal(net.weight_ih_l0_orig.grad == 0, ~mask)
    remove_masks(net)
    assert torch.equal(net(x)[0], expected(x)[0])
    optimizer.zero_grad()
    net(x)[0].sum().backward()
    optimizer.step()
    assert (net.weight_ih_l0 != expected.weight_ih_l0)[mask].all()
    assert not torch.equal(net(x)[0], expected(x)[0])


def test_the_output_projection_of_an_attention_layer_trains_under_its_mask():
    torch.manual_seed(0)
    net = nn.MultiheadAttention(4, 2)
    x = torch.randn(3, 1, 4)
    set_masks(net, [(net.out_proj, "weight", torch.eye(4))])
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for _ in range(3):
        optimizer.zero_grad()
        output = net(x, x, x)[0]
        assert torch.equal(net.out_proj.weight, net.out_proj.weight_orig * torch.eye(4))
        output.square().sum().backward()
        optimizer.step()
    set_masks(net, [(net.out_proj, "weight", torch.eye(4))])
    remove_masks(net)
    assert not net._forward_pre_hooks
    assert int((net.out_proj.weight != 0).sum()) == 4


def test_a_transformer_runs_alike_with_masks_and_with_the_same_zeros():
    torch.manual_seed(0)
    net = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True), 1)
    x = torch.randn(2, 3, 8)
    layers = [m for m in net.modules() if isinstance(m, nn.Linear)]
    set_masks(net, [(m, "weight", torch.rand(m.weight.shape) > 0.5) for m in layers])
    plain = copy.deepcopy(net)
    remove_masks(plain)
    for mode in (True, False):
        net.train(mode), plain.train(mode)
        with torch.set_grad_enabled(mode):
            assert torch.allclose(net(x), plain(x), atol=1e-6)


def test_our_quantization_keeps_the_zeros_of_live_masks():
    net = nn.Sequential(layer(), nn.ReLU(), nn.Linear(2, 2))
    set_masks(net, [(net[0], "weight", CHECKERED)])
    x = torch.randn(64, 4)
    plain = copy.deepcopy(net)
    remove_masks(plain)
    for scheme in ("post", "dynamic"):
        ours, expected = (quantize(n, scheme, [x], quant_params=[nn.Linear]) for n in (net, plain))
        assert torch.equal(ours(x), expected(x))


# State dicts


def test_pairs_become_the_masked_parameter_in_its_place():
    net = nn.Sequential(masked(), nn.BatchNorm1d(2))
    state = permanent_state(net.state_dict())
    remove_masks(net)
    assert next(iter(state)) == "0.weight"
    assert {name: value.tolist() for name, value in state.items()} == {
        name: value.tolist() for name, value in net.state_dict().items()
    }


def test_other_names_that_end_alike_are_left_alone():
    state = {"attn_mask": torch.ones(2), "x_orig": torch.ones(3), "x_mask": torch.ones(2), "y_orig": "text"}
    assert permanent_state(state) == state


def test_a_state_with_masks_loads_into_a_fresh_network():
    net = nn.Sequential(masked(), nn.Linear(2, 2))
    state = copy.deepcopy(net.state_dict())
    fresh = nn.Sequential(layer(), nn.Linear(2, 2))
    with pytest.raises(RuntimeError):
        fresh.load_state_dict(state)
    restore_masks(fresh, state)
    fresh.load_state_dict(state)
    refresh(fresh)
    assert torch.equal(fresh[0].weight, net[0].weight)
    with pytest.raises(ValueError, match=r"mask for '0\.weight', which the network does not have"):
        restore_masks(nn.ModuleDict(), state)


def test_a_network_that_follows_states_loads_them_with_and_without_masks():
    with_masks, without = nn.Sequential(masked()).state_dict(), nn.Sequential(layer()).state_dict()
    net = nn.Sequential(layer())
    with torch.no_grad():
        net[0].weight.zero_()
    handles = follow_state(net)
    net.load_state_dict(with_masks)
    assert torch.equal(net[0].weight, layer().weight * CHECKERED)
    net.load_state_dict(without)
    assert torch.equal(net[0].weight, layer().weight)
    assert bool(live_masks(net)["0.weight"].all())
    net.load_state_dict(with_masks)
    assert torch.equal(live_masks(net)["0.weight"], CHECKERED)
    with pytest.raises(RuntimeError, match=r"Unexpected key.*1\.weight_orig"):
        net.load_state_dict({**with_masks, "1.weight_orig": torch.ones(1), "1.weight_mask": torch.ones(1)})
    for handle in handles:
        handle.remove()
    with pytest.raises(RuntimeError, match="Missing key"):
        net.load_state_dict(without)
