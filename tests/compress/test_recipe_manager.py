"""Managers: order, epochs, phases, composing, text round trips, metadata."""

import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sparsemod.compress.recipe import (
    BaseManager,
    ConstantPruningModifier,
    EpochRangeModifier,
    GMPruningModifier,
    LayerPruningModifier,
    LayerThinningModifier,
    LearningRateFunctionModifier,
    LearningRateModifier,
    ScheduledModifierManager,
    SetLearningRateModifier,
    SparsificationTypes,
    StructuredPruningModifier,
)
from sparsemod.compress.recipe_yaml import load_yaml, yaml_value


def manager(*modifiers, **stages):
    return ScheduledModifierManager(list(modifiers) or stages)


def spans(found):
    groups = found.modifiers.items() if isinstance(found.modifiers, dict) else [("", found.modifiers)]
    return {name: [(type(m).__name__, m.start_epoch, m.end_epoch) for m in group] for name, group in groups}


class Fake(EpochRangeModifier):
    """A schedule that claims to prune or quantize."""

    def __init__(self, kind, start, end=-1):
        super().__init__(start, end)
        self.changes = (SparsificationTypes(kind),)


def test_sorted_by_schedule():
    rate = SetLearningRateModifier(learning_rate=0.1, start_epoch=0)
    found = manager(EpochRangeModifier(0, 20), rate, EpochRangeModifier(2, 10), EpochRangeModifier(0, 10))
    assert [(m.start_epoch, m.end_epoch) for m in found.modifiers] == [(0, 10), (2, 10), (0, 20), (0, -1)]


def test_stages_are_sorted_too():
    found = manager(
        late=[EpochRangeModifier(5, 9)], early=[EpochRangeModifier(3, 5), EpochRangeModifier(0, 4)]
    )
    assert list(found.modifiers) == ["early", "late"]
    assert [m.start_epoch for m in found.iter_modifiers()] == [0, 3, 5]
    assert found.num_stages() == 2
    assert manager(EpochRangeModifier(0, 1)).num_stages() == 1


def test_anything_else_is_refused():
    with pytest.raises(ValueError):
        ScheduledModifierManager("modifiers")
    with pytest.raises(ValueError):
        BaseManager([], more=1)


def test_the_callers_list_is_left_alone():
    given_list = [EpochRangeModifier(3, 5), EpochRangeModifier(0, 4)]
    found = ScheduledModifierManager(given_list)
    del found
    assert [m.start_epoch for m in given_list] == [3, 0]


def test_equal_by_text():
    assert manager(EpochRangeModifier(0, 3)) == manager(EpochRangeModifier(0.0, 3.0))
    assert manager(EpochRangeModifier(0, 3)) != manager(EpochRangeModifier(0, 4))


def test_typed_lists():
    gm = GMPruningModifier(0.1, 0.5, 0, 5, 1, ["re:.*weight"])
    structured = StructuredPruningModifier(0.1, 0.5, 0, 5, 1)
    thinning = LayerThinningModifier({"a": ["b"]})
    layer = LayerPruningModifier(["a"])
    rates = [
        SetLearningRateModifier(0.1),
        LearningRateFunctionModifier("linear", 0.1, 0.0, 0, 5),
        LearningRateModifier("ExponentialLR", {"gamma": 0.9}, 0.1, 0),
    ]
    constant = ConstantPruningModifier(["a"])
    epochs = EpochRangeModifier(0, 5)
    found = manager(gm, structured, thinning, layer, constant, epochs, *rates)
    assert found.epoch_modifiers == [epochs]
    assert set(found.learning_rate_modifiers) == set(rates)
    assert set(found.pruning_modifiers) == {gm, structured, thinning, layer, constant}
    assert set(found.structured_modifiers) == {structured, thinning, layer}
    assert found.quantization_modifiers == found.distillation_modifiers == []


class TestEpochs:
    def test_min_and_max(self):
        found = manager(EpochRangeModifier(1.5, 4), EpochRangeModifier(2, 9.2), SetLearningRateModifier(0.1))
        assert (found.min_epochs, found.max_epochs) == (1, 10)

    def test_a_start_counts_too(self):
        assert manager(SetLearningRateModifier(0.1, start_epoch=7.5)).max_epochs == 8

    def test_nothing_says(self):
        found = manager(SetLearningRateModifier(0.1))
        assert (found.min_epochs, found.max_epochs, found.get_last_start_epoch()) == (-1, -1, -1)

    def test_by_stage(self):
        found = manager(a=[EpochRangeModifier(0, 3)], b=[EpochRangeModifier(3, 9), EpochRangeModifier(4, 5)])
        assert found.get_start_end_epochs() == {"a": (0, 3), "b": (3, 9)}
        assert found.get_last_start_epoch() == 4
        assert manager(EpochRangeModifier(0, 3)).get_start_end_epochs() == {"all": (0, 3)}

    @pytest.mark.parametrize(
        ("start", "epoch", "active"),
        [
            (10, 8, False),
            (10, 9, False),
            (10, 9.5, True),
            (10, 10, True),
            (10.5, 9.5, False),
            (10.5, 9.6, True),
        ],
    )
    def test_quantization_active(self, start, epoch, active):
        assert manager(Fake("quantization", start)).qat_active(epoch) is active

    def test_never_active_without_quantization(self):
        assert manager(EpochRangeModifier(0, 3)).qat_active(2) is False


class TestPhase:
    @pytest.mark.parametrize(
        ("epoch", "phase"),
        [(9, "dense"), (10, None), (20, None), (20.1, "pruned"), (25, None), (25.1, "pruned_quantized")],
    )
    def test_prune_then_quantize(self, epoch, phase):
        assert manager(Fake("pruning", 10, 20), Fake("quantization", 25)).phase(epoch) == phase

    @pytest.mark.parametrize(
        ("spans", "epoch", "phase"),
        [
            ([], 0, "dense"),
            ([("pruning", 10, 20)], 9.9, "dense"),
            ([("pruning", 10, 20)], 21, "pruned"),
            ([("quantization", 10)], 9, "dense"),
            ([("quantization", 10)], 11, "dense_quantized"),
            ([("quantization", 10), ("quantization", 20)], 15, None),
            ([("quantization", 10), ("quantization", 20)], 21, "dense_quantized"),
            ([("pruning", 10, 20), ("pruning", 25, 30)], 22, None),
            ([("pruning", 10, 20), ("pruning", 25, 30)], 31, "pruned"),
            ([("pruning", 10, 25), ("quantization", 35), ("quantization", 45)], 30, "pruned"),
            ([("pruning", 10, 25), ("quantization", 35), ("quantization", 45)], 40, None),
            ([("pruning", 10, 25), ("quantization", 25), ("quantization", 35)], 36, "pruned_quantized"),
            ([("quantization", 10), ("quantization", 20), ("pruning", 30, 45)], 25, "dense_quantized"),
            ([("quantization", 10), ("quantization", 20), ("pruning", 30, 45)], 40, None),
            ([("quantization", 10), ("quantization", 20), ("pruning", 30, 45)], 46, "quantized_pruned"),
        ],
    )
    def test_scenarios(self, spans, epoch, phase):
        assert ScheduledModifierManager([Fake(*span) for span in spans]).phase(epoch) == phase


class TestCompose:
    R1 = "modifiers:\n  - !EpochRangeModifier {start_epoch: 0, end_epoch: 5}\n"
    R2 = (
        "modifiers:\n  - !EpochRangeModifier {start_epoch: 0, end_epoch: 8}\n"
        "  - !SetLearningRateModifier {learning_rate: 0.1, start_epoch: 2}\n"
    )

    def test_second_starts_where_the_first_ends(self):
        assert spans(ScheduledModifierManager.compose_staged(self.R1, self.R2)) == {
            "stage_0": [("EpochRangeModifier", 0, 5)],
            "stage_1": [("EpochRangeModifier", 5, 13), ("SetLearningRateModifier", 7, -1)],
        }

    def test_original_epochs(self):
        composed = ScheduledModifierManager.compose_staged(self.R1, self.R2, keep_original_epochs=True)
        assert spans(composed)["stage_1"] == [
            ("EpochRangeModifier", 0, 8),
            ("SetLearningRateModifier", 2, -1),
        ]

    def test_ends_of_the_first_are_filled_in(self):
        composed = ScheduledModifierManager.compose_staged(self.R2, self.R1)
        assert spans(composed) == {
            "stage_0": [("EpochRangeModifier", 0, 8), ("SetLearningRateModifier", 2, 8)],
            "stage_1": [("EpochRangeModifier", 8, 13)],
        }
        assert spans(ScheduledModifierManager.from_yaml(str(composed))) == spans(composed)

    def test_last_epoch_is_rounded_up(self):
        base = "modifiers:\n  - !EpochRangeModifier {start_epoch: 0, end_epoch: 4.2}\n"
        assert spans(ScheduledModifierManager.compose_staged(base, self.R1))["stage_1"] == [
            ("EpochRangeModifier", 5, 10)
        ]

    def test_first_that_never_ends_is_an_error_that_helps(self):
        base = "modifiers:\n  - !SetLearningRateModifier {learning_rate: 0.1}\n"
        with pytest.raises(ValueError, match="EpochRangeModifier"):
            ScheduledModifierManager.compose_staged(base, self.R1)
        kept = ScheduledModifierManager.compose_staged(base, self.R1, keep_original_epochs=True)
        assert spans(kept)["stage_1"] == [("EpochRangeModifier", 0, 5)]

    def test_managers_are_not_changed(self):
        one, two = (ScheduledModifierManager.from_yaml(text) for text in (self.R2, self.R1))
        before = str(one), str(two)
        ScheduledModifierManager.compose_staged(one, two)
        assert (str(one), str(two)) == before

    def test_names_of_stages(self):
        two = ScheduledModifierManager.compose_staged(self.R1, self.R1)
        three = ScheduledModifierManager.compose_staged(two, self.R1)
        assert list(three.modifiers) == ["stage_0", "stage_1", "stage_3"]
        assert list(ScheduledModifierManager.compose_staged(self.R1, two).modifiers) == [
            "pre_stage_0", "stage_0", "stage_1",
        ]  # fmt: skip
        four = {"stage_3": [EpochRangeModifier(0, 2)], "stage_4": [EpochRangeModifier(2, 4)]}
        composed = ScheduledModifierManager.compose_staged(two, ScheduledModifierManager(four))
        assert list(composed.modifiers) == ["stage_0", "stage_1", "stage_3", "stage_4"]
        with pytest.raises(ValueError, match="stage_0"):
            ScheduledModifierManager.compose_staged(two, two)

    def test_generated_name_that_is_taken(self):
        base = manager(stage_3=[EpochRangeModifier(0, 2)], stage_4=[EpochRangeModifier(2, 4)])
        with pytest.raises(ValueError, match="stage_3"):
            ScheduledModifierManager.compose_staged(base, self.R1)

    def test_thinning_moves_with_its_update_epochs(self):
        base = manager(LearningRateFunctionModifier("linear", 0.1, 0.01, 0, 10))
        thinning = manager(LayerThinningModifier({"a": ["b"]}, start_epoch=0, update_epochs=[1, 2, 3]))
        composed = ScheduledModifierManager.compose_staged(base, thinning)
        (moved,) = composed.modifiers["stage_1"]
        assert (moved.start_epoch, moved.update_epochs) == (10, [11, 12, 13])
        assert str(ScheduledModifierManager.from_yaml(str(composed))) == str(composed)

    def test_an_end_that_must_stay_open_does(self):
        base = manager(EpochRangeModifier(0, 10), LayerThinningModifier({"a": ["b"]}, start_epoch=3))
        composed = ScheduledModifierManager.compose_staged(base, self.R1)
        assert spans(composed)["stage_0"] == [("EpochRangeModifier", 0, 10), ("LayerThinningModifier", 3, -1)]

    def test_saved_at_once(self, tmp_path):
        path = tmp_path / "new" / "recipe.yaml"
        composed = ScheduledModifierManager.compose_staged(self.R1, self.R2, save_path=str(path))
        assert path.read_text() == str(composed)

    def test_metadata_of_each_stage(self):
        with_metadata = "__metadata__:\n  level: 0\n" + self.R1
        composed = ScheduledModifierManager.compose_staged(
            with_metadata, "__metadata__: {level: 1}\n" + self.R2
        )
        assert composed.metadata == {"stage_0": {"level": 0}, "stage_1": {"level": 1}}

    def test_metadata_of_one_stage_only_can_be_read_again(self):
        composed = ScheduledModifierManager.compose_staged("__metadata__: {level: 0}\n" + self.R1, self.R2)
        assert composed.metadata == {"stage_0": {"level": 0}, "stage_1": {}}
        assert str(ScheduledModifierManager.from_yaml(str(composed))) == str(composed)


UNSTAGED = """version: 1.1.0

__metadata__:
  level: 0
  run:
    seed: 3
    note: null

modifiers:
    - !EpochRangeModifier
        end_epoch: 3.0
        start_epoch: 0.0

    - !GMPruningModifier
        end_epoch: 3.0
        final_sparsity: 0.8
        global_sparsity: False
        init_sparsity: 0.2
        inter_func: cubic
        leave_enabled: True
        mask_type: unstructured
        params: ['re:.*weight']
        start_epoch: 0.0
        update_frequency: 1.0
"""

STAGED = """version: 1.1.0

stage_0:
  __metadata__:
    level: 0

  stage_0_modifiers:
      - !EpochRangeModifier
          end_epoch: 3.0
          start_epoch: 0.0
  
      - !SetLearningRateModifier
          constant_logging: False
          end_epoch: 3.0
          learning_rate: 0.1
          start_epoch: 0.0
  

stage_1:
  __metadata__:
    level: 1

  stage_1_modifiers:
      - !ConstantPruningModifier
          end_epoch: 8.0
          params: ['re:.*weight']
          start_epoch: 5.0
          update_frequency: -1.0
  
      - !EpochRangeModifier
          end_epoch: 9.0
          start_epoch: 3.0
  
"""  # noqa: W293


class TestText:
    def test_unstaged_layout(self):
        gm = GMPruningModifier(0.2, 0.8, 0, 3, 1, ["re:.*weight"])
        metadata = {"__metadata__": {"level": 0, "run": {"seed": 3, "note": None}}}
        assert str(ScheduledModifierManager([gm, EpochRangeModifier(0, 3)], metadata)) == UNSTAGED

    @pytest.mark.parametrize("text", [UNSTAGED, STAGED])
    def test_read_and_written_unchanged(self, text):
        assert str(ScheduledModifierManager.from_yaml(text)) == text

    def test_without_metadata(self):
        found = manager(EpochRangeModifier(0, 3))
        assert "__metadata__" not in str(found)
        assert found.to_string_lines()[:3] == ["version: 1.1.0", "", "modifiers:"]
        assert (
            ScheduledModifierManager.from_yaml(UNSTAGED).to_string_lines(include_metadata=False)[2]
            == "modifiers:"
        )

    def test_save(self, tmp_path):
        path = tmp_path / "a" / "b" / "recipe.yaml"
        found = ScheduledModifierManager.from_yaml(STAGED)
        found.save(str(path))
        assert path.read_text() == STAGED
        found.save(path, include_metadata=False)
        assert "__metadata__" not in path.read_text()
        assert spans(ScheduledModifierManager.from_yaml(path)) == spans(found)

    def test_empty_manager(self):
        assert ScheduledModifierManager.from_yaml(str(ScheduledModifierManager([]))).modifiers == []

    @pytest.mark.parametrize(
        "modifier",
        [
            GMPruningModifier("__FROM_PARAM__", {0.8: ["a.weight"], 0.9: ["re:it's.*\\d"]}, 0, 3, 0.5, []),
            GMPruningModifier(0.05, 0.8, 0, 3, 0.5, "__ALL__", mask_type=[1, 4]),
            GMPruningModifier(0.5, 0.5, 0, 3, 0.5, "__ALL__", mask_type="2:4"),
            StructuredPruningModifier(
                0.05, 0.8, 0, 3, 0.5, param_groups=[["a.weight", "b.weight"], ["c.weight"]]
            ),
            LearningRateModifier("MultiStepLR", {"milestones": [1, 2], "gamma": 1e-05}, 1e-05, 0.0),
            SetLearningRateModifier(0.1, param_groups=[0, 1]),
            LayerThinningModifier({"a.weight,b.weight": ["c.weight"]}, update_epochs=[1.5, 2]),
        ],
    )
    def test_awkward_values_survive(self, modifier):
        text = str(ScheduledModifierManager([modifier]))
        again = ScheduledModifierManager.from_yaml(text)
        assert str(again) == text
        assert again.modifiers[0].props(True) == modifier.props(True)

    def test_odd_names_of_stages_survive(self):
        found = ScheduledModifierManager(
            {"a: b": [EpochRangeModifier(0, 1)], "1": [EpochRangeModifier(1, 2)]}
        )
        assert list(ScheduledModifierManager.from_yaml(str(found)).modifiers) == ["a: b", "1"]


scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-(10**9), 10**9), st.floats(allow_nan=False), st.text(max_size=20),
    st.sampled_from(["null", "yes", "1e5", "1e-5", "0x10", "1:30", "2024-01-01", "~", "", " a", "- a", "<<"]),
)  # fmt: skip
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=6,
)


@settings(max_examples=100)
@given(values)
def test_every_value_is_read_as_it_was_written(value):
    text = yaml_value(value)
    assert "\n" not in text
    assert load_yaml(f"key: {text}\n") == {"key": value}


class TestMetadata:
    def test_colons_and_none_survive(self):
        metadata = {"cmd": "a: b", "nothing": None, "quote": "it's", "list": [1, "x: y"]}
        found = ScheduledModifierManager.from_yaml(TestCompose.R1, metadata=metadata)
        again = ScheduledModifierManager.from_yaml(str(found))
        assert again.metadata == found.metadata
        assert {key: again.metadata["__metadata__"][key] for key in metadata} == metadata

    def test_none_stays_none(self):
        found = ScheduledModifierManager.from_yaml(TestCompose.R1)
        assert found.metadata == {"__metadata__": None}
        assert ScheduledModifierManager.from_yaml(str(found)).metadata == {"__metadata__": None}
        staged = ScheduledModifierManager.compose_staged(TestCompose.R1, TestCompose.R2)
        assert staged.metadata == {"stage_0": None, "stage_1": None}
        assert ScheduledModifierManager.from_yaml(str(staged)).metadata == staged.metadata

    def test_versions_are_added_to_what_is_given(self):
        found = ScheduledModifierManager.from_yaml(TestCompose.R1, metadata={"level": 1})
        framework = found.metadata["__metadata__"]["framework_metadata"]
        assert set(framework) == {"python_version", "sparsemod_version", "torch_version"}
        assert framework["torch_version"] == torch.__version__

    def test_new_replaces_old_with_a_warning(self):
        with pytest.warns(UserWarning, match="replaced"):
            found = ScheduledModifierManager.from_yaml(UNSTAGED, metadata={"level": 1})
        assert found.metadata["__metadata__"]["level"] == 1
        with pytest.warns(UserWarning, match="replaced"):
            found = ScheduledModifierManager.from_yaml(STAGED, metadata={"level": 7})
        assert [found.metadata[stage]["level"] for stage in ("stage_0", "stage_1")] == [7, 7]

    @pytest.mark.parametrize(
        ("text", "metadata"),
        [
            (UNSTAGED, {"level": 0, "run": {"seed": 3, "note": None}}),
            (STAGED, {"stage_0": {"level": 0}, "stage_1": {"level": 1}}),
            (TestCompose.R1, {"level": 3}),
            (UNSTAGED, None),
        ],
    )
    def test_no_warning_where_nothing_differs(self, text, metadata):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            ScheduledModifierManager.from_yaml(text, metadata=metadata)

    def test_other_versions_warn(self):
        older = {"level": 1, "framework_metadata": {"torch_version": "1.0.0"}}
        with pytest.warns(UserWarning, match="made with"):
            found = ScheduledModifierManager.from_yaml(TestCompose.R1, metadata=older)
        assert found.metadata["__metadata__"]["framework_metadata"]["torch_version"] == torch.__version__

    def test_some_stages_with_and_some_without(self):
        text = STAGED.replace("  __metadata__:\n    level: 1\n", "")
        with pytest.raises(ValueError, match="none in stage_1"):
            ScheduledModifierManager.from_yaml(text)


class TestAddModifiers:
    def test_to_a_recipe_without_stages(self):
        found = ScheduledModifierManager.from_yaml(TestCompose.R1, add_modifiers=[EpochRangeModifier(0, 9)])
        assert found.max_epochs == 9

    def test_to_stages_is_refused(self):
        with pytest.raises(ValueError):
            ScheduledModifierManager.from_yaml(STAGED, add_modifiers=[EpochRangeModifier(0, 9)])


def test_structured_modifiers_alone(tmp_path):
    found = ScheduledModifierManager.from_yaml(
        "modifiers:\n"
        "  - !EpochRangeModifier {start_epoch: 0, end_epoch: 20}\n"
        "  - !LayerThinningModifier {param_group_dependency_map: {'a.weight': ['b.weight']},\n"
        "      start_epoch: 12, update_epochs: [13, 14]}\n"
        "  - !StructuredPruningModifier {init_sparsity: 0.1, final_sparsity: 0.5, start_epoch: 2,\n"
        "      end_epoch: 10, update_frequency: 1, params: ['a.weight']}\n"
        "  - !LayerPruningModifier {layers: ['c'], start_epoch: 5}\n"
    )
    order = [type(m).__name__ for m in found.structured_modifiers]
    path = tmp_path / "new" / "structured.yaml"
    found.finalize_and_save_structured_modifiers(str(path))
    again = ScheduledModifierManager.from_yaml(path)
    assert [type(m).__name__ for m in again.modifiers] == order
    net = torch.nn.Module()
    net.a, net.b, net.c = torch.nn.Linear(3, 4), torch.nn.Linear(4, 2), torch.nn.ReLU()
    again.initialize(net)
    again.update(net, torch.optim.SGD(net.parameters(), 0.1), 0.0, 1)
    assert all(m.started for m in again.modifiers)
    assert net.a.weight.shape == (2, 3)
    assert net.b.weight.shape == (2, 2)
    assert isinstance(net.c, torch.nn.Identity)
    assert found.max_epochs == 20


def test_base_manager_belongs_to_no_framework():
    with pytest.raises(NotImplementedError):
        BaseManager.from_yaml("a\nb")
    assert BaseManager([EpochRangeModifier(0, 3)]).max_epochs == 3
