"""What `ModelPruning` does, in a plain loop and in Lightning's Trainer: the same cases and numbers."""

import copy
import gc
import logging

import pytest
import torch
from pruning_runs import RUNS, A, B
from torch import nn
from torch.nn.utils import prune

from sparsemod.errors import ConfigError

pytestmark = pytest.mark.filterwarnings(
    "ignore::UserWarning", "ignore::DeprecationWarning", "ignore::FutureWarning"
)


@pytest.fixture(params=RUNS, ids=lambda run: run.__name__)
def run(request):
    return request.param()


@pytest.fixture
def messages(caplog):
    """What was logged about pruning so far."""
    caplog.set_level(logging.INFO)
    return lambda: [message for message in caplog.messages if message.startswith("Applied")]


def zeros(net):
    return int(sum((w == 0).sum() for w in (net.a.weight, net.b.weight)))


def floats(tensor):
    return [round(value, 4) for value in tensor.flatten().tolist()]


def pruned(run, *, epochs=1, lr=0.0, bias=False, cls=None, **arguments):
    """Train the network of the cases with one pruning, which has no lottery ticket unless said otherwise."""
    net = run.net(bias)
    arguments = {"pruning_fn": "l1_unstructured", "use_lottery_ticket_hypothesis": False, **arguments}
    make = arguments.pop("parameters_of", None)
    if make:
        arguments["parameters_to_prune"] = make(net)
    pruning = (cls or run.ModelPruning)(**arguments)
    run.fit(net, pruning, epochs, lr)
    return net, pruning


# What is pruned, and how much


def test_globally_half_of_the_smallest_of_all_weights_go(run):  # B1
    net, _ = pruned(run, amount=0.5)
    assert floats(net.a.weight) == [0, 0, 0, 0, 0, 0, 0.7, 0.8]
    assert net.b.weight.tolist() == B


@pytest.mark.parametrize(("epochs", "expected"), [(1, 3), (2, 6)])
def test_a_count_is_that_many_more_each_time(run, epochs, expected):  # B2
    net, _ = pruned(run, amount=3, epochs=epochs)
    assert zeros(net) == expected


def test_locally_each_parameter_loses_its_own_smallest(run):  # B4
    net, _ = pruned(run, amount=0.5, use_global_unstructured=False)
    assert floats(net.a.weight) == [0, 0, 0, 0, 0.5, 0.6, 0.7, 0.8]
    assert floats(net.b.weight) == [0, 0, 3, 4]
    net, _ = pruned(run, amount=1, use_global_unstructured=False)
    assert floats(net.a.weight) == [0, *floats(torch.tensor(A))[1:]]
    assert floats(net.b.weight) == [0, 2, 3, 4]


@pytest.mark.parametrize(("amount", "expected"), [(12, 12), (1.0, 12), (1, 1)])
def test_an_int_is_a_count_and_a_float_a_fraction(run, amount, expected):  # B5
    net, _ = pruned(run, amount=amount)
    assert zeros(net) == expected


def test_more_than_there_is_cannot_be_pruned(run):  # B5
    with pytest.raises(ValueError, match="cannot prune 13 of 12"):
        pruned(run, amount=13)


def test_more_than_is_left_cannot_be_pruned(run):
    with pytest.raises(ValueError, match="cannot prune 7 of 5"):
        pruned(run, amount=7, epochs=2)


@pytest.mark.parametrize("amount", [1.5, -0.1, -1, "0.5", None, True, float("nan"), [0.5]])
def test_an_amount_that_is_none_is_refused_at_once(run, amount):  # B6, B7
    with pytest.raises(ConfigError, match="amount"):
        run.ModelPruning("l1_unstructured", amount=amount)


@pytest.mark.parametrize("amount", [0, 0.0])
def test_an_amount_of_nothing_does_nothing(run, messages, amount):  # B6
    net, _ = pruned(run, amount=amount, verbose=1, make_pruning_permanent=False)
    assert zeros(net) == 0
    assert list(net.state_dict()) == ["a.weight", "b.weight"]
    assert messages() == []


def test_the_amount_may_be_a_function_of_the_epoch(run):  # B9
    called = []

    def amount(epoch):
        called.append(epoch)
        return [0.25, 0.5, 0][epoch]

    assert zeros(pruned(run, amount=amount, epochs=1)[0]) == 3
    assert zeros(pruned(run, amount=amount, epochs=2)[0]) == 7
    called.clear()
    assert zeros(pruned(run, amount=amount, epochs=3)[0]) == 7
    assert called == [0, 1, 2]


@pytest.mark.parametrize("value", ["0.5", 1.5, True])
def test_a_wrong_amount_of_a_function_is_named_with_its_epoch(run, value):
    with pytest.raises(ConfigError, match="amount in epoch 1"):
        pruned(run, amount=lambda epoch: value if epoch else 0.25, epochs=2)


def test_whether_to_prune_may_be_a_function_of_the_epoch(run, messages):  # B10
    called = []

    def apply(epoch):
        called.append(epoch)
        return epoch == 1

    net, _ = pruned(run, amount=0.25, apply_pruning=apply, epochs=3, verbose=1)
    assert zeros(net) == 3
    assert len(messages()) == 1
    assert called == [0, 1, 2]


def test_a_fraction_is_of_what_is_left_and_the_log_says_so(run, messages):  # B11
    net, _ = pruned(run, amount=0.5, epochs=3, verbose=1)
    assert messages() == [
        "Applied `L1Unstructured`. Pruned: 0/12 (0.00%) -> 6/12 (50.00%)",
        "Applied `L1Unstructured`. Pruned: 6/12 (50.00%) -> 9/12 (75.00%)",
        "Applied `L1Unstructured`. Pruned: 9/12 (75.00%) -> 11/12 (91.67%)",
    ]
    assert zeros(net) == 11


def test_the_log_counts_parameters_and_not_their_masks_too(run, messages):  # B12, pytorch-lightning 13595
    net = run.net()
    net.b = nn.Linear(2, 2, bias=False)
    net.c = nn.Linear(32, 2)
    run.fit(
        net,
        run.ModelPruning(
            "l1_unstructured",
            [(net.c, "weight"), (net.c, "bias")],
            amount=0.2,
            use_lottery_ticket_hypothesis=False,
            verbose=1,
        ),
    )
    assert messages() == ["Applied `L1Unstructured`. Pruned: 0/66 (0.00%) -> 13/66 (19.70%)"]


def test_verbose_2_logs_each_parameter(run, messages):
    pruned(run, amount=0.5, use_global_unstructured=False, verbose=2)
    layer = "Linear(in_features={}, out_features=2, bias=False).weight` with amount=0.5. Pruned: 0 (0.00%)"
    assert messages() == [
        "Applied `l1_unstructured`. Pruned: 0/12 (0.00%) -> 6/12 (50.00%)",
        f"Applied `l1_unstructured` to `{layer.format(4)} -> 4 (50.00%)",
        f"Applied `l1_unstructured` to `{layer.format(2)} -> 2 (50.00%)",
    ]


def test_the_log_goes_to_standard_error_where_logging_is_not_set_up(run, capsys, monkeypatch):
    monkeypatch.setattr(logging.getLogger("sparsemod.compress.epoch_pruning"), "hasHandlers", lambda: False)
    pruned(run, verbose=1)
    assert "Applied `L1Unstructured`. Pruned: 0/12 (0.00%) -> 6/12 (50.00%)\n" in capsys.readouterr().err


def test_a_linear_layer_of_64_by_64_keeps_410_weights_at_90_percent(run):  # neuralmagic/sparseml 408
    net = run.net()
    net.c = nn.Linear(64, 64, bias=False)
    run.fit(net, run.ModelPruning("l1_unstructured", [(net.c, "weight")], amount=0.9))
    assert int(net.c.weight.count_nonzero()) == 410


# The methods


@pytest.mark.parametrize(("norm", "gone"), [(1, 1), (2, 0), (float("inf"), 0)])
def test_structured_pruning_takes_the_slices_of_the_smallest_norm(run, norm, gone):
    net = run.net()
    net.c = nn.Linear(2, 2, bias=False)
    with torch.no_grad():
        net.c.weight.copy_(torch.tensor([[3.0, 3.0], [5.0, 0.5]]))
    pruning = run.ModelPruning(
        "LN_structured",
        [(net.c, "weight")],
        use_global_unstructured=False,
        amount=0.5,
        pruning_dim=0,
        pruning_norm=norm,
        use_lottery_ticket_hypothesis=False,
    )
    run.fit(net, pruning)
    assert net.c.weight[gone].tolist() == [0, 0]
    assert net.c.weight[1 - gone].count_nonzero() == 2


def test_structured_pruning_counts_the_slices_that_are_left(run):
    net = run.net()
    net.c = nn.Linear(3, 8)
    pruning = run.ModelPruning(
        "random_structured", [(net.c, "weight")], use_global_unstructured=False, amount=0.5, pruning_dim=0
    )
    run.fit(net, pruning, epochs=3)
    dead = (net.c.weight == 0).all(dim=1)
    assert int(dead.sum()) == 7
    assert net.c.weight[~dead].count_nonzero() == 3


def test_structured_pruning_along_the_columns(run):
    net, _ = pruned(
        run,
        pruning_fn="ln_structured",
        use_global_unstructured=False,
        amount=1,
        pruning_dim=-1,
        pruning_norm=1,
    )
    assert floats(net.a.weight) == [0, 0.2, 0.3, 0.4, 0, 0.6, 0.7, 0.8]
    assert floats(net.b.weight) == [0, 2, 0, 4]


def test_structured_pruning_leaves_biases_out_by_default(run):  # B14
    net, _ = pruned(
        run,
        pruning_fn="ln_structured",
        use_global_unstructured=False,
        pruning_dim=0,
        pruning_norm=1,
        bias=True,
    )
    assert floats(net.a.weight) == [0, 0, 0, 0, 0.5, 0.6, 0.7, 0.8]
    assert net.a.bias.count_nonzero() == 2


@pytest.mark.parametrize(
    ("name", "dim", "says"), [("bias", 0, "a.bias has 1"), ("weight", 2, "out of range for a.w")]
)
def test_what_has_no_such_slices_is_refused_before_training(run, name, dim, says):  # B14
    net = run.net(bias=True)
    pruning = run.ModelPruning(
        "random_structured", [(net.a, name)], use_global_unstructured=False, pruning_dim=dim
    )
    with pytest.raises(ConfigError, match=says):
        run.fit(net, pruning)


def test_random_pruning_follows_the_seed_and_leaves_the_global_generator_alone(run):
    def mask(initial, **arguments):
        torch.manual_seed(initial)
        before = torch.get_rng_state()
        net = run.net()
        after = torch.get_rng_state()
        pruning = run.ModelPruning("random_unstructured", make_pruning_permanent=False, **arguments)
        (pruning.start(net, 1) if hasattr(pruning, "start") else pruning.setup(None, net, "fit"))
        pruning.prune_epoch(0)
        assert torch.equal(torch.get_rng_state(), after)
        assert not torch.equal(before, after)
        return torch.cat([net.a.weight_mask.flatten(), net.b.weight_mask.flatten()]).tolist()

    assert mask(0) == mask(0)
    assert sum(mask(0)) == 6
    assert len({tuple(mask(seed)) for seed in range(5)}) > 1
    assert mask(0, seed=7) == mask(1, seed=7)


class EveryOther(prune.BasePruningMethod):
    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t, default_mask):
        mask = default_mask.clone()
        mask.view(-1)[::2] = 0
        return mask


class BelowAmount(EveryOther):
    def __init__(self, amount):
        self.amount = amount

    def compute_mask(self, t, default_mask):
        return default_mask * (t.abs() >= self.amount)


class Structured(EveryOther):
    PRUNING_TYPE = "structured"


class Misshapen(EveryOther):
    def compute_mask(self, t, default_mask):
        return default_mask[:3]


def test_a_class_of_ones_own_chooses_among_what_is_left_of_all_parameters(run, messages):
    net, _ = pruned(run, pruning_fn=EveryOther, epochs=2, verbose=1)
    assert floats(net.a.weight) == [0, 0, 0, 0.4, 0, 0, 0, 0.8]
    assert floats(net.b.weight) == [0, 0, 0, 4]
    assert messages()[1] == "Applied `EveryOther`. Pruned: 6/12 (50.00%) -> 9/12 (75.00%)"  # known bug 4
    net, _ = pruned(run, pruning_fn=BelowAmount, amount=0.35)
    assert floats(net.a.weight) == [0, 0, 0, 0.4, 0.5, 0.6, 0.7, 0.8]


def test_a_class_of_ones_own_that_returns_no_mask_is_told(run):
    with pytest.raises(
        ValueError, match=r"Misshapen.compute_mask must return a mask of shape \(12,\), got \(3,\)"
    ):
        pruned(run, pruning_fn=Misshapen)


def test_the_classes_of_torch_are_their_names(run):
    net, _ = pruned(run, pruning_fn=prune.L1Unstructured)
    assert floats(net.a.weight) == [0, 0, 0, 0, 0, 0, 0.7, 0.8]


# What makes no sense is refused when it is said


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"pruning_fn": "foo"}, "pruning_fn must be one of"),
        ({"pruning_fn": "l1_unstructurd"}, "did you mean 'l1_unstructured'"),
        ({"pruning_fn": {}}, "pruning_fn is expected to be"),
        ({"pruning_fn": prune.l1_unstructured}, "pruning_fn is expected to be"),
        ({"pruning_fn": prune.L1Unstructured(0.5)}, "pass the class"),
        ({"pruning_fn": EveryOther, "use_global_unstructured": False}, "only supported with use_global"),
        (
            {"pruning_fn": prune.L1Unstructured, "use_global_unstructured": False},
            "only supported with use_global",
        ),
        ({"pruning_fn": Structured}, "PRUNING_TYPE 'unstructured'"),
        ({"pruning_fn": prune.BasePruningMethod}, "PRUNING_TYPE 'unstructured'"),
        ({"pruning_fn": "ln_structured", "pruning_norm": 1}, "pruning_dim should be provided"),
        ({"pruning_fn": "random_structured"}, "pruning_dim should be provided"),
        ({"pruning_fn": "ln_structured", "pruning_dim": 0}, "pruning_norm should be provided"),
        (
            {"pruning_fn": "ln_structured", "pruning_dim": 0, "pruning_norm": 1},
            "use_global_unstructured=True",
        ),
        (
            {"pruning_fn": "ln_structured", "pruning_dim": "0", "pruning_norm": 1},
            "pruning_dim must be an int",
        ),
        (
            {"pruning_fn": "ln_structured", "pruning_dim": 0, "pruning_norm": "2"},
            "pruning_norm must be a number",
        ),
        ({"parameter_names": ["chocolate"]}, "'chocolate' isn't in"),
        ({"parameter_names": "weight"}, "parameter_names must be a list"),
        ({"verbose": 3}, "verbose must be any of"),
        ({"verbose": None}, "verbose must be any of"),
        ({"apply_pruning": 1}, "apply_pruning must be"),
        ({"use_lottery_ticket_hypothesis": "yes"}, "use_lottery_ticket_hypothesis must be"),
        ({"make_pruning_permanent": None}, "make_pruning_permanent must be"),
        ({"resample_parameters": 1}, "resample_parameters must be"),
        ({"use_global_unstructured": "no"}, "use_global_unstructured must be"),
        ({"prune_on_train_epoch_end": 0}, "prune_on_train_epoch_end must be"),
        ({"seed": 0.5}, "seed must be"),
    ],
)
def test_arguments_without_meaning(run, arguments, says):  # B15
    with pytest.raises(ConfigError, match=says):
        run.ModelPruning(**{"pruning_fn": "l1_unstructured", **arguments})


def test_the_parameters_of_a_network_are_found(run):  # B16
    net = run.net(bias=True)
    find = run.ModelPruning.sanitize_parameters_to_prune
    everything = [(net.a, "weight"), (net.b, "weight"), (net.a, "bias"), (net.b, "bias")]
    for empty in ((), [], None):
        assert list(find(net, empty)) == everything
    assert list(find(net, parameter_names=["weight"])) == everything[:2]
    assert list(find(net, parameter_names=[])) == everything
    assert list(find(net, [(net.b, "bias")])) == [(net.b, "bias")]
    assert list(find(net, ((net.b, "bias"),))) == [(net.b, "bias")]


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda net: [(nn.Linear(4, 2), "weight")], "is not a layer of the model"),
        (lambda net: [(net.a, "gamma")], "has no parameter 'gamma'"),
        (lambda net: [(net.a, "wieght")], "did you mean 'weight'"),
        (lambda net: [net.a], "got Linear at position 0"),
        (lambda net: (net.a,), "got Linear at position 0"),
        (lambda net: [(net.a, "weight"), (net.a, 1)], r"got \(Linear, int\) at position 1"),
        (lambda net: "ab", "got str"),
        (lambda net: net, "got .*Net"),
        (lambda net: [(net, "weight")], "parameters_to_prune: position 0"),
        (lambda net: net.parameters(), r"a list of \(module, parameter name\) pairs, got generator"),
        (lambda net: list(net.parameters()), "got Parameter at position 0"),  # pytorch/tutorials 1054
    ],
)
def test_a_list_that_is_none_or_not_of_the_network(run, make, says):  # B16
    net = run.net(bias=True)
    with pytest.raises(ConfigError, match=says):
        run.ModelPruning.sanitize_parameters_to_prune(net, make(net))
    with pytest.raises(TypeError, match=says):
        run.fit(net, run.ModelPruning("l1_unstructured", make(net)))


def test_only_parameters_of_layers_that_are_named_so_are_found(
    run,
):  # B17, pytorch-lightning 6835, 10835, 13411
    net = run.net()
    del net.a, net.b
    net.norm = nn.BatchNorm1d(4)
    net.lstm = nn.LSTM(4, 3)
    net.stem = nn.Sequential(nn.Conv1d(1, 2, 3, bias=False), nn.Identity())
    net.head = nn.Linear(3, 2)
    net.flags = nn.Identity()
    net.flags.weight, net.flags.bias = True, "no"
    expected = {
        "weight": {net.norm, net.stem[0], net.head},
        "bias": {net.norm, net.head},
    }
    found = run.ModelPruning.sanitize_parameters_to_prune(net)
    assert [name for _, name in found] == ["weight"] * 3 + ["bias"] * 2
    for name, modules in expected.items():
        assert {module for module, its in found if its == name} == modules
    for attribute in ("bias", "batch_first"):
        with pytest.raises(ConfigError, match="has no parameter"):
            run.ModelPruning.sanitize_parameters_to_prune(net, [(net.lstm, attribute)])
    with pytest.raises(ConfigError, match="has no parameter 'bias'"):
        run.ModelPruning.sanitize_parameters_to_prune(net, [(net.stem[0], "bias")])


def test_a_lazy_layer_is_asked_to_take_its_shape_first(run):
    net = run.net()
    net.c = nn.LazyLinear(2)
    with pytest.raises(ConfigError, match=r"c\.weight has no shape yet"):
        run.fit(net, run.ModelPruning("l1_unstructured"))


# The lottery ticket


def test_the_lottery_ticket_goes_back_to_the_first_values(run):  # B18, pytorch-lightning 13643; known bug 1
    net, _ = pruned(run, lr=0.1, use_lottery_ticket_hypothesis=True, make_pruning_permanent=False)
    assert net.a.weight_orig.tolist() == torch.tensor(A).tolist()
    assert net.a.weight_mask.flatten().tolist() == [1, 0, 0, 0, 1, 0, 0, 0]
    assert floats(net.a.weight) == [0.1, 0, 0, 0, 0.5, 0, 0, 0]


def test_the_lottery_ticket_and_no_lottery_ticket(run):  # B19
    net, _ = pruned(run, lr=0.1, use_lottery_ticket_hypothesis=True)
    assert floats(net.a.weight) == [0.1, 0, 0, 0, 0.5, 0, 0, 0]
    net, _ = pruned(run, lr=0.1, make_pruning_permanent=False)
    assert floats(net.a.weight_orig) == [-0.68, -0.58, -0.48, -0.38, -0.648, -0.548, -0.448, -0.348]


@pytest.mark.parametrize(("apply", "expected"), [(True, 2), (False, 0)])
def test_the_lottery_ticket_may_be_a_function_of_the_epoch(run, apply, expected):  # B20
    calls = []

    class Counting(run.ModelPruning):
        def apply_lottery_ticket_hypothesis(self):
            super().apply_lottery_ticket_hypothesis()
            calls.append(1)

    pruned(run, cls=Counting, epochs=5, apply_pruning=apply, use_lottery_ticket_hypothesis=lambda e: e % 2)
    assert len(calls) == expected


def test_resampling_draws_new_values(run):  # B21
    net = run.net(bias=True)
    pruning = run.ModelPruning(
        "l1_unstructured", parameter_names=["weight"], resample_parameters=True, make_pruning_permanent=False
    )
    run.fit(net, pruning, lr=0.1)
    first = net.a.weight_orig.detach().clone()
    trained = torch.tensor([-0.68, -0.58, -0.48, -0.38, -0.648, -0.548, -0.448, -0.348]).view(2, 4)
    assert not torch.isclose(first, torch.tensor(A)).any()
    assert not torch.isclose(first, trained).any()
    assert net.a.weight_mask.flatten().tolist() == [1, 0, 0, 0, 1, 0, 0, 0]
    assert torch.equal(net.a.weight, first * net.a.weight_mask)
    before = torch.get_rng_state()
    pruning.apply_lottery_ticket_hypothesis()
    assert torch.equal(net.a.weight_orig, first), "the same seed and epoch give the same values"
    assert torch.equal(torch.get_rng_state(), before)
    pruning._resample = False
    pruning.apply_lottery_ticket_hypothesis()
    assert net.a.weight_orig.tolist() == torch.tensor(A).tolist(), "the first values are still there"


def test_without_the_lottery_ticket_there_is_nothing_to_go_back_to(run):
    _, pruning = pruned(run)
    with pytest.raises(ConfigError, match="no values were kept"):
        pruning.apply_lottery_ticket_hypothesis()


# What is left when it is done


def test_the_state_of_a_trained_network(run):  # B23
    net, _ = pruned(run)
    assert sorted(net.state_dict()) == ["a.weight", "b.weight"]
    net, _ = pruned(run, make_pruning_permanent=False)
    assert sorted(net.state_dict()) == ["a.weight_mask", "a.weight_orig", "b.weight_mask", "b.weight_orig"]
    assert zeros(net) == 6


def test_what_is_pruned_may_be_filtered(run):  # B26
    class Filtered(run.ModelPruning):
        def filter_parameters_to_prune(self, parameters_to_prune=()):
            return [(m, name) for m, name in parameters_to_prune if m.in_features == 4]

    net, _ = pruned(run, cls=Filtered)
    assert floats(net.a.weight) == [0, 0, 0, 0, 0.5, 0.6, 0.7, 0.8]
    assert net.b.weight.tolist() == B


@pytest.mark.filterwarnings("default")
def test_filtering_everything_out_warns_and_does_nothing(run, messages):  # B26; known bug 3
    class Nothing(run.ModelPruning):
        def filter_parameters_to_prune(self, parameters_to_prune=()):
            return []

    with pytest.warns(UserWarning, match="no parameters to prune"):
        net, _ = pruned(run, cls=Nothing, verbose=2, use_lottery_ticket_hypothesis=True)
    assert zeros(net) == 0
    assert messages() == []


def test_an_entry_given_twice_counts_once(run):  # B27; known bug 10
    net = run.net()
    with torch.no_grad():
        net.a.weight.copy_(torch.tensor([[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]]))
    twice = [(net.a, "weight"), (net.a, "weight")]
    for together in (True, False):
        pruning = run.ModelPruning(
            "l1_unstructured",
            twice,
            amount=2,
            use_global_unstructured=together,
            use_lottery_ticket_hypothesis=False,
        )
        run.fit(net, pruning)
        assert net.a.weight.flatten().tolist() == [0, 0, 3, 4, 5, 6, 7, 8]


def test_shared_weights_count_once_and_are_masked_in_both_layers(run, messages):
    net = run.net()
    net.c = nn.Linear(2, 2, bias=False)
    net.c.weight = net.b.weight
    pruning = run.ModelPruning("l1_unstructured", amount=7, verbose=1, make_pruning_permanent=False)
    run.fit(net, pruning)
    assert messages() == ["Applied `L1Unstructured`. Pruned: 0/12 (0.00%) -> 7/12 (58.33%)"]
    assert net.c.weight_orig is net.b.weight_orig
    assert torch.equal(net.c.weight, net.b.weight)
    pruning.make_pruning_permanent(net)
    assert net.c.weight is net.b.weight


def test_the_same_pruning_goes_through_a_second_training(run):  # B30
    net, pruning = pruned(run)
    assert zeros(net) == 6
    run.fit(net, pruning)
    assert zeros(net) == 6


def test_the_same_pruning_works_on_another_network(run):
    _, pruning = pruned(run)
    net = run.net()
    run.fit(net, pruning)
    assert zeros(net) == 6


def test_masks_that_stay_and_the_lottery_ticket_go_through_many_trainings(
    run,
):  # pytorch-lightning 8542; bug 5
    def n_tensors():
        gc.collect()
        return sum(isinstance(thing, torch.Tensor) for thing in gc.get_objects())

    net = run.net()
    pruning = run.ModelPruning("l1_unstructured", amount=2, make_pruning_permanent=False)
    counts = []
    for fit in range(3):
        run.fit(net, pruning, lr=0.1)
        assert zeros(net) == 2 * (fit + 1)
        counts.append(n_tensors())
    assert len(set(counts)) == 1
    assert net.a.weight_orig.tolist() == torch.tensor(A).tolist()


def test_a_masked_network_can_be_copied_and_quantized(run):  # B32, pytorch 37322; known bug 5
    net = nn.Sequential(run.net().a)
    fresh = run.net()
    fresh.net = net
    pruning = run.ModelPruning(
        "l1_unstructured",
        [(net[0], "weight")],
        make_pruning_permanent=False,
        use_lottery_ticket_hypothesis=False,
    )
    run.fit(fresh, pruning)
    x = torch.eye(4)
    expected = net(x)
    copied = copy.deepcopy(net)
    assert torch.equal(copied(x), expected)
    assert torch.equal(copied[0].weight, net[0].weight)
    quantized = torch.ao.quantization.quantize_dynamic(net, {nn.Linear}, dtype=torch.qint8)
    assert int((quantized[0].weight().dequantize() == 0).sum()) == 4
    assert torch.allclose(quantized(x), expected, atol=0.02)
    pruning.make_pruning_permanent(net)
    assert int((net[0].weight == 0).sum()) == 4
    assert int((copied[0].weight == 0).sum()) == 4


def test_two_prunings_of_one_network_add_up(run, messages):
    net = run.net()
    common = {"verbose": 1, "use_lottery_ticket_hypothesis": False, "make_pruning_permanent": False}
    first = run.ModelPruning("l1_unstructured", amount=0.5, apply_pruning=lambda e: e % 2 == 0, **common)
    second = run.ModelPruning(
        "random_unstructured", amount=0.25, apply_pruning=lambda e: e % 2 == 1, **common
    )
    run.fit(net, [first, second], epochs=3)
    assert messages() == [
        "Applied `L1Unstructured`. Pruned: 0/12 (0.00%) -> 6/12 (50.00%)",
        "Applied `RandomUnstructured`. Pruned: 6/12 (50.00%) -> 8/12 (66.67%)",
        "Applied `L1Unstructured`. Pruned: 8/12 (66.67%) -> 10/12 (83.33%)",
    ]


def test_pruned_weights_stay_zero_whatever_the_optimizer_does(run):
    net, _ = pruned(run, lr=0.1, epochs=3, apply_pruning=lambda e: e == 0)
    assert zeros(net) == 6


def test_pruning_without_a_network_says_when_there_is_one(run):
    with pytest.raises(ConfigError, match="has no network yet"):
        run.ModelPruning("l1_unstructured").apply_pruning(0.5)
