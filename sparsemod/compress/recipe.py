"""Recipes: what to do to a network while it trains, as a text (see docs/recipes.md).

    from sparsemod.compress.recipe import ScheduledModifierManager

    manager = ScheduledModifierManager.from_yaml("recipe.yaml")
    optimizer = manager.modify(net, optimizer, steps_per_epoch=len(loader))
    ...  # train as always, with optimizer.step()
    manager.finalize(net)

The public names of the recipe system, all in one place. Recipes of SparseML are read and written unchanged.
"""

from __future__ import annotations

from sparsemod.compress.lifecycle import (
    Modifier,
    PyTorchModifierYAML,
    ScheduledModifier,
    ScheduledUpdateModifier,
)
from sparsemod.compress.manager import BaseManager
from sparsemod.compress.modifier import BaseModifier, BaseObject, SparsificationTypes
from sparsemod.compress.modifiers_acdc import ACDCPruningModifier
from sparsemod.compress.modifiers_distillation import DistillationModifier
from sparsemod.compress.modifiers_layers import LayerPruningModifier, LayerThinningModifier
from sparsemod.compress.modifiers_optimizer import (
    LearningRateFunctionModifier,
    LearningRateModifier,
    SetLearningRateModifier,
    SetWeightDecayModifier,
)
from sparsemod.compress.modifiers_pruning import (
    ConstantPruningModifier,
    GlobalMagnitudePruningModifier,
    GMPruningModifier,
    MagnitudePruningModifier,
)
from sparsemod.compress.modifiers_quantization import QuantizationModifier
from sparsemod.compress.modifiers_structured import StructuredPruningModifier
from sparsemod.compress.modifiers_training import (
    EpochRangeModifier,
    GradualParamModifier,
    SetParamModifier,
    TrainableParamsModifier,
)
from sparsemod.compress.props import BaseProp, ModifierProp
from sparsemod.compress.recipe_errors import (
    FrontMatterError,
    LifecycleError,
    RecipeArgumentError,
    RecipeError,
    RecipeEvalError,
    RecipeStateError,
    RecipeSyntaxError,
)
from sparsemod.compress.recipe_source import load_recipe_yaml_str, parse_recipe_variables
from sparsemod.compress.registry import ModifierYAML
from sparsemod.compress.scheduled import BaseScheduled, BaseUpdate
from sparsemod.compress.stepping import RecipeManagerStepWrapper
from sparsemod.compress.training_manager import ScheduledModifierManager

__all__ = [
    "ACDCPruningModifier",
    "BaseManager",
    "BaseModifier",
    "BaseObject",
    "BaseProp",
    "BaseScheduled",
    "BaseUpdate",
    "ConstantPruningModifier",
    "DistillationModifier",
    "EpochRangeModifier",
    "FrontMatterError",
    "GMPruningModifier",
    "GlobalMagnitudePruningModifier",
    "GradualParamModifier",
    "LayerPruningModifier",
    "LayerThinningModifier",
    "LearningRateFunctionModifier",
    "LearningRateModifier",
    "LifecycleError",
    "MagnitudePruningModifier",
    "Modifier",
    "ModifierProp",
    "ModifierYAML",
    "PyTorchModifierYAML",
    "QuantizationModifier",
    "RecipeArgumentError",
    "RecipeError",
    "RecipeEvalError",
    "RecipeManagerStepWrapper",
    "RecipeStateError",
    "RecipeSyntaxError",
    "ScheduledModifier",
    "ScheduledModifierManager",
    "ScheduledUpdateModifier",
    "SetLearningRateModifier",
    "SetParamModifier",
    "SetWeightDecayModifier",
    "SparsificationTypes",
    "StructuredPruningModifier",
    "TrainableParamsModifier",
    "load_recipe_yaml_str",
    "parse_recipe_variables",
]
