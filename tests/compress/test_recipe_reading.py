"""Reading recipes: sources, variables, stages, overrides, limits."""

import pytest
import yaml

from sparsemod.compress.recipe import (
    EpochRangeModifier,
    Modifier,
    ScheduledModifierManager,
    load_recipe_yaml_str,
    parse_recipe_variables,
)
from sparsemod.compress.recipe_errors import RecipeError
from sparsemod.compress.recipe_text import parse_recipe
from sparsemod.compress.recipe_yaml import load_yaml
from sparsemod.errors import ConfigError

RANGE = "modifiers:\n  - !EpochRangeModifier\n    start_epoch: 0\n    end_epoch: {}\n"


def end(text, **options):
    """The end of the only EpochRangeModifier."""
    (modifier,) = ScheduledModifierManager.from_yaml(text, **options).epoch_modifiers
    return modifier.end_epoch


def staged(variables, stage_variables, end_epoch):
    lines = "".join(f"  {line}\n" for line in stage_variables)
    return (
        "\n".join(variables)
        + f"\nfirst:\n{lines}"
        + f"  modifiers:\n    - !EpochRangeModifier\n      start_epoch: 0\n      end_epoch: {end_epoch}\n"
    )


class TestSources:
    def test_yaml_file(self, tmp_path):
        path = tmp_path / "recipe.yaml"
        path.write_text(RANGE.format(7))
        assert end(str(path)) == end(path) == 7

    def test_markdown_file_with_front_matter(self, tmp_path):
        path = tmp_path / "card.md"
        path.write_text(f"---\n{RANGE.format(7)}---\n# Title\n\nNot: yaml: at all\n")
        assert end(str(path)) == 7

    def test_markdown_file_with_a_comment_first(self, tmp_path):
        path = tmp_path / "card.md"
        path.write_text(f"<!--\nLicence: some\n-->\n\n---\n{RANGE.format(7)}---\n# Title\n\n---\nmore\n---\n")
        assert end(str(path)) == end(path.read_text()) == 7

    def test_markdown_file_without_front_matter(self, tmp_path):
        path = tmp_path / "card.md"
        path.write_text("# Title\n")
        with pytest.raises(RuntimeError, match="between two '---' lines"):
            load_recipe_yaml_str(str(path))

    @pytest.mark.parametrize("name", ["recipe.json", "recipe", "recipe.txt"])
    def test_other_extension(self, name):
        with pytest.raises(ValueError, match=name):
            load_recipe_yaml_str(name)

    def test_missing_file_is_said_in_one_line(self):
        with pytest.raises(ConfigError, match=r"nowhere\.yaml: No such file"):
            load_recipe_yaml_str("nowhere.yaml")

    def test_model_zoo_is_not_asked(self):
        with pytest.raises(ValueError, match="not downloaded"):
            load_recipe_yaml_str("zoo:cv/classification/x")

    def test_text_with_front_matter(self):
        assert end(f"---\n{RANGE.format(7)}---\n# Title\n") == 7

    def test_windows_line_ends(self, tmp_path):
        path = tmp_path / "recipe.md"
        path.write_bytes(f"---\n{RANGE.format(7)}---\n# Title\n".replace("\n", "\r\n").encode())
        assert end(path) == 7

    def test_text_that_is_no_utf8(self, tmp_path):
        path = tmp_path / "recipe.yaml"
        path.write_bytes(b"modifiers: \xff\xfe")
        with pytest.raises(RecipeError, match="UTF-8"):
            load_recipe_yaml_str(path)


class TestShapes:
    def test_a_single_modifier(self):
        assert end("!EpochRangeModifier\n  start_epoch: 0\n  end_epoch: 3\n") == 3

    def test_a_bare_list(self):
        text = (
            "- !EpochRangeModifier\n  start_epoch: 0\n  end_epoch: 3\n"
            "- !SetLearningRateModifier {learning_rate: 0.1}\n"
        )
        assert len(ScheduledModifierManager.from_yaml(text).modifiers) == 2

    def test_several_groups(self):
        text = (
            "training_modifiers:\n  - !EpochRangeModifier {start_epoch: 0, end_epoch: 3}\n"
            "my_modifiers_2:\n  - !SetLearningRateModifier {learning_rate: 0.1}\n"
        )
        assert len(ScheduledModifierManager.from_yaml(text).modifiers) == 2

    def test_framework_prefix(self):
        assert end("modifiers:\n  - !pytorch.EpochRangeModifier {start_epoch: 0, end_epoch: 3}\n") == 3

    def test_version_and_unused_variables_are_no_modifiers(self):
        assert end("version: 1.1.0\nother: [1, 2]\n" + RANGE.format(3)) == 3

    @pytest.mark.parametrize(
        "text",
        [
            "n: 1\nm: 2\n",
            "steps:\n  - !EpochRangeModifier {start_epoch: 0, end_epoch: 3}\n",
            "modifiers:\n  - start_epoch: 0\n    end_epoch: 3\n",
            "modifiers: 3\n\n",
            "just text\nof two lines",
            "3\n\n",
            "a: !EpochRangeModifier {start_epoch: 0, end_epoch: 3}\n" + RANGE.format(3),
            RANGE.format(3)
            + "stage:\n  modifiers:\n    - !EpochRangeModifier {start_epoch: 0, end_epoch: 3}\n",
        ],
    )
    def test_what_is_no_recipe(self, text):
        with pytest.raises(ValueError):
            ScheduledModifierManager.from_yaml(text)

    def test_unknown_modifier_is_a_yaml_error_that_names_the_nearest(self):
        with pytest.raises(yaml.YAMLError, match=r"line 2.*did you mean 'EpochRangeModifier'"):
            ScheduledModifierManager.from_yaml("modifiers:\n  - !EpochRangModifier {start_epoch: 0}\n")

    @pytest.mark.parametrize("arguments", ["{start_epoch: 0}", "{start_epoch: 0, end_epoch: 3, last: 2}"])
    def test_missing_or_unknown_argument_is_a_type_error(self, arguments):
        with pytest.raises(TypeError, match="line 2"):
            ScheduledModifierManager.from_yaml(f"modifiers:\n  - !EpochRangeModifier {arguments}\n")

    def test_wrong_value_names_line_argument_and_value(self):
        with pytest.raises(ValueError, match=r"line 2: learning_rate must be in \(0, 1\], not 3"):
            ScheduledModifierManager.from_yaml(
                "modifiers:\n  - !SetLearningRateModifier {learning_rate: 3}\n"
            )

    def test_log_types_of_old_recipes_are_ignored(self):
        assert (
            end("modifiers:\n  - !EpochRangeModifier {start_epoch: 0, end_epoch: 3, log_types: __ALL__}\n")
            == 3
        )

    def test_load_obj_and_load_list(self):
        assert isinstance(
            Modifier.load_obj("!EpochRangeModifier\n  start_epoch: 0\n  end_epoch: 3"), EpochRangeModifier
        )
        assert [type(m) for m in Modifier.load_list(RANGE.format(3))] == [EpochRangeModifier]
        with pytest.raises(ValueError, match="one modifier"):
            Modifier.load_obj("- !SetLearningRateModifier {learning_rate: 0.1}\n" * 2)


class TestVariables:
    def test_forward_references_and_functions(self):
        recipe = "k: eval(max(m,3)//7)\nm: eval(n**2)\nn: 10\n" + RANGE.format("eval(k)")
        assert end(recipe) == 14

    def test_lone_name_may_be_a_list_or_text(self):
        text = (
            "names: ['re:.*weight']\nfunc: linear\nmodifiers:\n"
            "  - !GMPruningModifier {init_sparsity: 0.1, final_sparsity: 0.5, start_epoch: 0, end_epoch: 1,\n"
            "      update_frequency: 1, params: eval(names), inter_func: eval(func)}\n"
        )
        (modifier,) = ScheduledModifierManager.from_yaml(text).modifiers
        assert modifier.params == ["re:.*weight"]
        assert modifier.inter_func == "linear"

    def test_eval_inside_mappings(self):
        text = (
            "g: 0.5\nmodifiers:\n  - !LearningRateModifier {lr_class: ExponentialLR,\n"
            "      lr_kwargs: {gamma: eval(g/2)}, init_lr: 0.1, start_epoch: 0}\n"
        )
        assert ScheduledModifierManager.from_yaml(text).modifiers[0].lr_kwargs == {"gamma": 0.25}

    def test_exponent_without_a_point_is_a_number(self):
        assert end("lr: 1e-3\n" + RANGE.format("eval(lr * 1000)")) == 1.0

    @pytest.mark.parametrize(
        "variables",
        [
            "n: eval(m)\nm: eval(n)", "n: eval(n)", "n: eval(missing)", "n: eval(a.b)",
            "a: eval(missing)\nn: 1",
            "\n".join(f"n{i}: eval(n{i + 1})" for i in range(2000)) + "\nn: eval(n0)",
        ],
    )  # fmt: skip
    def test_circles_and_unknown_names(self, variables):
        with pytest.raises(RuntimeError):
            end(f"{variables}\n" + RANGE.format("eval(n)"))

    def test_parametrization_gives_names_and_overrules(self):
        recipe = "share: 0.5\n" + RANGE.format("eval(share * epochs)")
        assert end(recipe, parametrization={"epochs": 20, "other": "x"}) == 10
        assert end(recipe, parametrization={"epochs": 20, "share": 0.25}) == 5


class TestStages:
    def test_stage_sees_globals(self):
        assert end(staged(["lr: 0.1"], ["e: eval(lr*100)"], "eval(e)")) == 10.0

    def test_stage_shadows_globals_in_its_modifiers(self):
        assert end(staged(["n: 100"], ["n: 75"], "eval(n)")) == 75
        assert end(staged(["n: 100"], ["n: 75"], "eval(n + 1)")) == 76

    def test_stage_shadows_globals_in_its_arithmetic(self):
        assert end(staged(["n: 100"], ["n: 75", "m: eval(n * 2)"], "eval(m)")) == 150

    def test_stage_can_keep_hold_of_a_global_it_shadows(self):
        assert end(staged(["n: 100"], ["n: 75", "n_global: eval(n)"], "eval(n_global)")) == 100
        assert end(staged(["n: 100"], ["n: eval(n)"], "eval(n)")) == 100
        assert end(staged(["n: 100"], ["n: eval(n / 4)"], "eval(n)")) == 25

    def test_globals_do_not_see_stages(self):
        with pytest.raises(RuntimeError, match="local"):
            end(staged(["n: eval(local)"], ["local: 3"], "eval(n)"))

    def test_stages_keep_their_names(self):
        manager = ScheduledModifierManager.from_yaml(staged([], [], 3))
        assert list(manager.modifiers) == ["first"]
        assert manager.num_stages() == 1


class TestOverrides:
    RECIPE = "n: 10\n" + RANGE.format("eval(n*2+1)")

    def test_none(self):
        assert end(self.RECIPE) == 21

    @pytest.mark.parametrize(("given", "value"), [({"n": 4}, 9), ("n=5", 11), ('{"n":6}', 13), ("n:5", 11)])
    def test_dict_pairs_and_json(self, given, value):
        assert end(self.RECIPE, recipe_variables=given) == value

    @pytest.mark.parametrize("given", ["m=5", "n", "n=", "=5", "n=1=2", "{n: 5", "[1]", {"m": 1}, 5])
    def test_bad_pair_or_unknown_name(self, given):
        with pytest.raises(ValueError):
            end(self.RECIPE, recipe_variables=given)

    def test_every_variable_of_that_name_in_a_staged_recipe(self):
        recipe = staged(["n: 1"], ["n: 2", "m: eval(n)"], "eval(n * 10)")
        assert end(recipe, recipe_variables={"n": 4}) == 40

    def test_words_stay_words(self):
        assert parse_recipe_variables("a=cosine,b:3") == {"a": "cosine", "b": 3.0}


HOSTILE = {
    "deep flow": "a: " + "[" * 30_000,
    "deep block": "".join("  " * i + "a:\n" for i in range(300)),
    "deep dashes": "- " * 30_000,
    "laughs": "a: &a [x,x,x,x,x,x,x,x,x]\n"
    + "\n".join(
        f"{c}: &{c} [{','.join([f'*{p}'] * 9)}]" for p, c in zip("abcdefgh", "bcdefghi", strict=True)
    ),
    "laughs by merge keys": "a: &a {x: 1}\n"
    + "\n".join(
        f"{c}: &{c} {{<<: [{','.join([f'*{p}'] * 9)}]}}" for p, c in zip("abcdefgh", "bcdefghi", strict=True)
    ),
    "contains itself": "a: &a [*a]\n",
    "python object": "modifiers:\n  - !!python/object/apply:os.system ['true']\n",
    "python name": "a: !!python/name:os.system\n",
    "binary": "a: !!binary aGk=\n",
    "10 MB": "a: 1\n" * 2_000_000,
    "many values": "- a\n" * 24_000,
    "many keys": "".join(f"a{i}: {i}\n" for i in range(9_000)),
    "attribute access": "n: 1\n" + RANGE.format("eval(n.__class__)"),
    "long number": "a: " + "9" * 50_000,
    "giant power": RANGE.format("eval(9**9**9**9)"),
    "squares of squares": "v0: 9999999\n"
    + "".join(f"v{i + 1}: eval(v{i} * v{i})\n" for i in range(60))
    + RANGE.format("eval(v60)"),
    "lists of lists by eval": "v0: [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n"
    + "".join(f"v{i + 1}: [{', '.join([f'eval(v{i})'] * 10)}]\n" for i in range(9))
    + RANGE.format(1),
    "control characters": "a: \x00\n",
    "two documents": "--- {a: 1}\n--- {b: 1}\n",
    "unhashable key": "? [a]\n: 1\n",
    "no yaml": "a: [1, 2\n",
    "tag with a list": "modifiers:\n  - !EpochRangeModifier [0, 3]\n",
    "too many modifiers": "modifiers:\n" + "  - !EpochRangeModifier {}\n" * 3000,
    "infinite epoch": RANGE.format(".inf"),
    "epoch that is no number": RANGE.format(".nan"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_recipe_is_refused_in_one_line(name):
    with pytest.raises(ConfigError) as caught:
        ScheduledModifierManager.from_yaml(HOSTILE[name] + "\n")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


def test_large_file_is_not_even_read(tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_text("a: 1\n" * 2_000_000)
    with pytest.raises(ConfigError, match="bytes"):
        ScheduledModifierManager.from_yaml(path)


def test_dates_and_versions_stay_text():
    assert load_yaml("day: 2024-01-01\nversion: 1.1.0\n") == {"day": "2024-01-01", "version": "1.1.0"}


def test_aliases_within_limits_are_fine():
    recipe = parse_recipe("names: &n ['re:.*weight']\n" + RANGE.format(3) + "  - !Any {params: *n}\n")
    assert recipe.modifiers[1].arguments == {"params": ["re:.*weight"]}


CARD = """<!--
A licence
-->

---
# Epochs and rates
num_epochs: &num_epochs 12.0
init_lr: &init_lr 5e-3
recovery_start: &recovery_start 6

# Quantization
quantization_start_epoch: &quantization_start_epoch 9
freeze: &freeze 10.5
milestones: &milestones [10, 11]
mask_type: &mask_type [1, 4]

training_modifiers:
  - !EpochRangeModifier
    start_epoch: 0.0
    end_epoch: *num_epochs

  # pruning
  - !SetLearningRateModifier
    start_epoch: 0.0
    learning_rate: *init_lr

  - !LearningRateModifier
    start_epoch: *recovery_start
    end_epoch: *quantization_start_epoch
    lr_class: CosineAnnealingWarmRestarts
    lr_kwargs:
      lr_min: 0.00001
      cycle_epochs: 3
    init_lr: *init_lr

  - !SetWeightDecayModifier
    start_epoch: *recovery_start
    weight_decay: 0.0

  - !LearningRateModifier
    start_epoch: *quantization_start_epoch
    lr_class: MultiStepLR
    lr_kwargs:
      milestones: *milestones
      gamma: 0.1
    init_lr: 0.001

pruning_modifiers:
  - !GMPruningModifier
    params:
      - features.0.weight
      - re:classifier.*.weight
    init_sparsity: 0.05
    final_sparsity: 0.75
    mask_type: *mask_type
    start_epoch: 1.0
    end_epoch: 6.0
    update_frequency: 0.5
    log_types: __ALL__

quantization_modifiers:
  - !QuantizationModifier
      start_epoch: *quantization_start_epoch
      disable_quantization_observer_epoch: *freeze
      freeze_bn_stats_epoch: *freeze
      quantize_linear_activations: 0
      tensorrt: False # no target of this kind
      exclude_module_types: ['LayerNorm', 'Tanh']
      submodules:
        - features
        - classifier
---

# A card

---
And a rule above.
"""


def test_recipe_card_as_people_write_them():
    manager = ScheduledModifierManager.from_yaml(CARD)
    assert len(manager.modifiers) == 7
    assert (manager.min_epochs, manager.max_epochs) == (0, 12)
    (pruning,) = manager.pruning_modifiers
    assert (pruning.params, pruning.mask_type) == (["features.0.weight", "re:classifier.*.weight"], [1, 4])
    (quantization,) = manager.quantization_modifiers
    assert quantization.submodules == ["features", "classifier"]
    assert quantization.disable_quantization_observer_epoch == 10.5
    assert str(ScheduledModifierManager.from_yaml(str(manager))) == str(manager)
