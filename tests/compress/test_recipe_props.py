"""Properties, text, identity, order and schedule of modifiers."""

import pytest

from sparsemod.compress.recipe import (
    BaseModifier,
    BaseObject,
    BaseProp,
    BaseScheduled,
    BaseUpdate,
    EpochRangeModifier,
    ModifierProp,
    ModifierYAML,
    SetLearningRateModifier,
    SparsificationTypes,
)


class Example(BaseModifier):
    """A modifier of every kind of property."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self._word = "a"
        self._extra = 1
        self._locked = False

    @ModifierProp()
    def word(self):
        return self._word

    @word.setter
    def word(self, value):
        self._word = value

    @ModifierProp(serializable=False)
    def secret(self):
        return "s"

    @ModifierProp(restrict_initialized=False, restrict_enabled=True)
    def while_disabled(self):
        return None

    @while_disabled.setter
    def while_disabled(self, value):
        self._word = value

    @ModifierProp(restrict_extras=["_locked"], no_serialize_val=1)
    def extra(self):
        return self._extra

    @extra.setter
    def extra(self, value):
        self._extra = value

    @ModifierProp(no_serialize_val=[])
    def computed(self):
        return [1.5, None, "x"]


class Scheduled(BaseScheduled, BaseModifier):
    """A schedule and nothing else."""


def scheduled(start, end, comparator=-1):
    return Scheduled(start_epoch=start, end_epoch=end, end_comparator=comparator)


class TestProps:
    def test_base_prop_is_abstract(self):
        with pytest.raises(TypeError):
            BaseProp()

    def test_delete_is_refused(self):
        with pytest.raises(AttributeError):
            del Example().word

    def test_without_getter_or_setter(self):
        class Bare:
            nothing = ModifierProp()
            read_only = ModifierProp(func_get=lambda self: 1)

        with pytest.raises(AttributeError):
            Bare().nothing
        with pytest.raises(AttributeError):
            Bare().read_only = 2

    def test_initialized_restricts_by_default(self):
        example = Example()
        example.word = "b"
        example._initialized = True
        with pytest.raises(AttributeError, match="initialized"):
            example.word = "c"
        assert example.word == "b"

    def test_enabled_and_extra_flags_restrict(self):
        example = Example()
        with pytest.raises(AttributeError, match="enabled"):
            example.while_disabled = "b"
        example.enabled = False
        example.while_disabled = "b"
        assert example.word == "b"
        example._locked = True
        with pytest.raises(AttributeError, match="locked"):
            example.extra = 2

    def test_properties_of_the_property(self):
        prop = Example.extra
        assert prop.serializable
        assert prop.restrictions == ["_initialized", "_locked"]
        assert prop.no_serialize_val == 1
        assert not Example.secret.serializable

    def test_value_not_to_write_survives_the_setter(self):
        assert "extra" not in Example().props(only_serializable=True)
        example = Example()
        example.extra = 2
        assert example.props(only_serializable=True)["extra"] == 2

    def test_none_is_not_written(self):
        assert "while_disabled" not in Example().props(only_serializable=True)


class TestModifier:
    def test_defaults(self):
        example = Example()
        assert example.enabled
        assert not example.initialized
        assert example.sparsification_types == []

    def test_base_object(self):
        with pytest.raises(ValueError, match="more"):
            BaseObject(more=1)
        with pytest.raises(TypeError):
            BaseObject(1)
        with pytest.raises(ValueError):
            Example(more=1)

    def test_props(self):
        example = Example()
        assert example.props(only_serializable=True) == {"computed": [1.5, None, "x"], "word": "a"}
        everything = example.props(only_serializable=False)
        assert list(everything) == sorted(everything)
        assert everything["secret"] == "s"
        assert example.props(True, format_str=True) == {"computed": "[1.5, null, 'x']", "word": "a"}
        assert example.props(True, format_repr=True) == {"computed": "[1.5, None, 'x']", "word": "'a'"}
        with pytest.raises(ValueError):
            example.props(True, format_str=True, format_repr=True)

    def test_text_is_the_class_and_a_line_for_each_prop(self):
        assert str(Example()) == "!Example\n    computed: [1.5, null, 'x']\n    word: a"

    def test_repr(self):
        assert repr(EpochRangeModifier(0, 3)).startswith("EpochRangeModifier(enabled=True, end_epoch=3.0,")

    def test_identifier(self):
        one, two, three = EpochRangeModifier(0, 3), EpochRangeModifier(0.0, 3.0), EpochRangeModifier(0, 4)
        assert one.identifier() == two.identifier() != three.identifier()
        name, digest = one.identifier().split("-")
        assert name == "EpochRangeModifier"
        assert len(digest) == 32
        assert one.identifier("x") == f"{one.identifier()}-x"

    def test_yaml_key(self):
        assert BaseModifier.yaml_key(Example) == "!Example"
        assert BaseModifier.yaml_key(Example, "pytorch") == "!pytorch.Example"

    def test_types(self):
        assert {kind.value for kind in SparsificationTypes} == {
            "general", "epoch", "learning_rate", "activation_sparsity", "pruning", "quantization",
            "distillation", "regularization", "structured",
        }  # fmt: skip
        assert EpochRangeModifier(0, 1).sparsification_types == [SparsificationTypes.epoch]

    def test_types_can_be_overridden_by_a_getter(self):
        class Pruning(BaseModifier):
            @BaseModifier.sparsification_types.getter
            def sparsification_types(self):
                return [SparsificationTypes.pruning]

        assert Pruning().sparsification_types == [SparsificationTypes.pruning]
        assert Example().sparsification_types == []

    def test_yaml_decorator(self):
        with pytest.raises(ValueError):
            ModifierYAML("")
        with pytest.raises(TypeError):
            ModifierYAML()

        @ModifierYAML("my_framework")
        class Mine(BaseModifier):
            def __init__(self, size=1):
                super().__init__()
                self._size = size

            @ModifierProp()
            def size(self):
                return self._size

        loaded = BaseModifier.load_framework_obj("!Mine\n  size: 3\n  log_types: __ALL__\n", "my_framework")
        assert isinstance(loaded, Mine)
        assert loaded.size == 3
        assert (
            BaseModifier.load_framework_obj(str(loaded), "my_framework").identifier() == loaded.identifier()
        )
        assert BaseModifier.load_framework_list("modifiers:\n  - !Mine\n", "my_framework")[0].size == 1
        with pytest.raises(ValueError):
            BaseModifier.load_framework_obj("!Mine\n  size: 3\n", "another")


class TestOrder:
    @pytest.mark.parametrize(
        ("one", "two", "order"),
        [
            ((0, 5), (0, 10), -1),
            ((0, -1), (0, 10), 1),
            ((0, 10), (0, -1), -1),
            ((0, 10), (2, 10), -1),
            ((0, 10), (0, 10), 0),
            ((0, -1), (0, -1), 0),
        ],
    )
    def test_by_end_then_start(self, one, two, order):
        assert BaseModifier.comparator(scheduled(*one), scheduled(*two)) == order
        assert BaseModifier.comparator(scheduled(*two), scheduled(*one)) == -order

    def test_without_an_end_comes_first(self):
        for compare in (
            BaseModifier.comparator_ends,
            BaseModifier.comparator_starts,
            BaseModifier.comparator,
        ):
            assert compare(Example(), scheduled(0, 10)) == -1
            assert compare(scheduled(-1, -1), Example()) == 1
            assert compare(Example(), Example()) == 0

    def test_by_identifier_last(self):
        one, two = EpochRangeModifier(0, 10), scheduled(0, 10)
        expected = -1 if one.identifier() < two.identifier() else 1
        assert BaseModifier.comparator(one, two) == expected == BaseModifier.comparator_identifiers(one, two)

    @pytest.mark.parametrize(
        ("one", "two", "order"),
        [
            ([(0, 5), (1, 3)], [(0, 4)], 1),
            ([(0, -1)], [(0, 4)], 1),
            ([(0, -1), (0, 3)], [(0, 4)], -1),
            ([(1, 4), (2, 3)], [(0, 4)], 1),
            ([(0, 4)], [(0, 4)], 0),
        ],
    )
    def test_lists(self, one, two, order):
        lists = [[scheduled(*span) for span in spans] for spans in (one, two)]
        assert BaseModifier.comparator_lists(*lists) == order
        assert BaseModifier.comparator_lists(*reversed(lists)) == -order


class TestSchedule:
    @pytest.mark.parametrize("span", [(-2, -1, -1), (5, 3, 0), (5, 5, 1), (5, -1, 0), (5, -1, 1), (5, 4, -1)])
    def test_refused(self, span):
        with pytest.raises(ValueError):
            scheduled(*span)

    @pytest.mark.parametrize(
        "span", [(5, -1, -1), (5, -1, None), (5, 5, 0), (5, 6, 1), (5, 5, -1), (-1, -1, 0)]
    )
    def test_accepted(self, span):
        modifier = scheduled(*span)
        assert (modifier.start_epoch, modifier.end_epoch) == span[:2]
        assert isinstance(modifier.start_epoch, float)

    def test_end_that_cannot_change(self):
        modifier = scheduled(5, -1, None)
        with pytest.raises(ValueError, match="stays -1"):
            modifier.end_epoch = 7
        assert modifier.end_epoch == -1
        modifier.end_epoch = -1

    def test_checked_again_when_set(self):
        modifier = scheduled(2, 5, 0)
        modifier.start_epoch = 5
        with pytest.raises(ValueError):
            modifier.end_epoch = 4
        with pytest.raises(ValueError):
            modifier.start_epoch = 6
        assert (modifier.start_epoch, modifier.end_epoch) == (5, 5)

    def test_smallest_start_and_end(self):
        with pytest.raises(ValueError, match="start_epoch must be at least 0"):
            Scheduled(start_epoch=-1, min_start=0)
        with pytest.raises(ValueError, match="end_epoch must be at least 0"):
            Scheduled(end_epoch=-1, min_end=0)

    @pytest.mark.parametrize("value", ["soon", None, float("nan"), float("inf"), True])
    def test_epochs_are_numbers(self, value):
        with pytest.raises(ValueError, match="finite number"):
            EpochRangeModifier(value, 10)

    @pytest.mark.parametrize(
        ("span", "by", "moved"),
        [
            ((-1, -1), 10, (10, -1)),
            ((0, 5), 10, (10, 15)),
            ((2, -1), 10, (12, -1)),
            ((2.5, 5), 1.5, (4, 6.5)),
            ((2, 5), None, (2, 5)),
        ],
    )
    def test_advance(self, span, by, moved):
        modifier = scheduled(*span)
        modifier.advance_epochs(by)
        assert (modifier.start_epoch, modifier.end_epoch) == moved

    def test_advance_where_the_end_cannot_change(self):
        modifier = SetLearningRateModifier(learning_rate=0.1, start_epoch=2)
        modifier.advance_epochs(10)
        assert (modifier.start_epoch, modifier.end_epoch) == (12, -1)

    def test_update_frequency(self):
        with pytest.raises(ValueError, match="at least -1"):
            BaseUpdate(update_frequency=-2, min_frequency=-1)
        update = BaseUpdate(update_frequency=0.5, min_frequency=0.25)
        with pytest.raises(ValueError):
            update.update_frequency = 0.1
        assert update.update_frequency == 0.5
        with pytest.raises(TypeError):
            BaseUpdate()
