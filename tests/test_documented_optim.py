"""What the documentation of SparseML's `optim` and Lightning's `ModelPruning` shows works by our imports."""

import inspect
import json

import pytest
import torch
from torch import nn

import sparsemod.optim as optim

# Each documented callable with its arguments; a default is written as the documentation writes it.
SIGNATURES = [
    "AnalyzedLayerDesc(name, type_, params=0, zeroed_params=0, prunable_params=0, params_dims=None, "
    "prunable_params_dims=None, execution_order=-1, input_shape=None, output_shape=None, flops=0, "
    "total_flops=0, stride=None)",
    "AnalyzedLayerDesc.dict()",
    "AnalyzedLayerDesc.load_descs(path)",
    "AnalyzedLayerDesc.merge_descs(orig, descs)",
    "AnalyzedLayerDesc.save_descs(descs, path)",
    "BaseManager(modifiers, metadata=None)",
    "BaseManager.compose_staged(base_recipe, additional_recipe, keep_original_epochs=False, save_path=None)",
    "BaseManager.finalize_and_save_structured_modifiers(file_path)",
    "BaseManager.iter_modifiers()",
    "BaseManager.metadata_to_string_lines(stage=None)",
    "BaseManager.modifiers_list_to_string_lines(modifiers)",
    "BaseManager.modifiers_to_string_lines(modifiers, include_metadata=True)",
    "BaseManager.num_stages()",
    "BaseManager.qat_active(epoch)",
    "BaseManager.save(file_path, include_metadata=True)",
    "BaseManager.to_string_lines(include_metadata=True)",
    "BaseModifier()",
    "BaseModifier.comparator(one, two)",
    "BaseModifier.comparator_ends(one, two)",
    "BaseModifier.comparator_identifiers(one, two)",
    "BaseModifier.comparator_lists(one, two)",
    "BaseModifier.comparator_starts(one, two)",
    "BaseModifier.identifier(extra='')",
    "BaseModifier.load_framework_list(yaml_str, framework)",
    "BaseModifier.load_framework_obj(yaml_str, framework)",
    "BaseModifier.props(only_serializable, format_str=False, format_repr=False)",
    "BaseModifier.yaml_key(clazz, framework=None)",
    "BaseObject()",
    "BaseProp.getter(func_get)",
    "BaseProp.setter(func_set)",
    "BaseScheduled(start_epoch=-1.0, min_start=-1.0, end_epoch=-1.0, min_end=-1.0, end_comparator=0)",
    "BaseScheduled.validate_schedule()",
    "BaseUpdate(update_frequency, min_frequency)",
    "BaseUpdate.validate_update()",
    "ModifierProp(serializable=True, restrict_initialized=True, restrict_enabled=False, restrict_extras=None"
    ", no_serialize_val=None, func_get=None, func_set=None, doc=None)",
    "ModifierProp.getter(func_get)",
    "ModifierProp.setter(func_set)",
    "ModifierYAML(framework)",
    "LRLossSensitivityAnalysis()",
    "LRLossSensitivityAnalysis.add_result(lr, loss_measurements)",
    "LRLossSensitivityAnalysis.dict()",
    "LRLossSensitivityAnalysis.load_json(path)",
    "LRLossSensitivityAnalysis.plot(path, title=None)",
    "LRLossSensitivityAnalysis.print_res()",
    "LRLossSensitivityAnalysis.save_json(path)",
    "PruningLossSensitivityAnalysis()",
    "PruningLossSensitivityAnalysis.add_result(id_, name, index, sparsity, measurement, baseline)",
    "PruningLossSensitivityAnalysis.dict()",
    "PruningLossSensitivityAnalysis.from_dict(dictionary)",
    "PruningLossSensitivityAnalysis.get_result(id_or_name)",
    "PruningLossSensitivityAnalysis.load_json(path)",
    "PruningLossSensitivityAnalysis.plot(path, plot_integral, normalize=True, title=None)",
    "PruningLossSensitivityAnalysis.print_res()",
    "PruningLossSensitivityAnalysis.save_json(path)",
    "PruningPerfSensitivityAnalysis(num_cores, batch_size)",
    "PruningPerfSensitivityAnalysis.add_model_result(sparsity, measurement, baseline)",
    "PruningPerfSensitivityAnalysis.add_result(id_, name, index, sparsity, measurement, baseline)",
    "PruningPerfSensitivityAnalysis.dict()",
    "PruningPerfSensitivityAnalysis.from_dict(dictionary)",
    "PruningPerfSensitivityAnalysis.get_result(id_or_name)",
    "PruningPerfSensitivityAnalysis.load_json(path)",
    "PruningPerfSensitivityAnalysis.plot(path, title=None)",
    "PruningPerfSensitivityAnalysis.print_res()",
    "PruningPerfSensitivityAnalysis.save_json(path)",
    "PruningSensitivityResult(id_, name, index, baseline_measurement_index=-1, baseline_measurement_key=None"
    ", sparse_measurements=None)",
    "PruningSensitivityResult.add_measurement(sparsity, loss, baseline)",
    "PruningSensitivityResult.dict()",
    "PruningSensitivityResult.from_dict(dictionary)",
    "PruningSensitivityResult.sparse_comparison(compare_index=-1)",
    "default_pruning_sparsities_loss(extended)",
    "default_pruning_sparsities_perf()",
]
PROPERTIES = {
    "AnalyzedLayerDesc": ["prunable", "terminal"],
    "BaseManager": [
        "distillation_modifiers",
        "epoch_modifiers",
        "learning_rate_modifiers",
        "max_epochs",
        "metadata",
        "min_epochs",
        "modifiers",
        "pruning_modifiers",
        "quantization_modifiers",
        "structured_modifiers",
    ],
    "BaseModifier": ["enabled", "initialized", "sparsification_types"],
    "BaseScheduled": ["end_epoch", "start_epoch"],
    "BaseUpdate": ["update_frequency"],
    "ModifierProp": ["no_serialize_val", "restrictions", "serializable"],
    "LRLossSensitivityAnalysis": ["results"],
    "PruningLossSensitivityAnalysis": ["results", "results_model"],
    "PruningPerfSensitivityAnalysis": ["batch_size", "num_cores", "results", "results_model"],
    "PruningSensitivityResult": [
        "averages",
        "baseline_average",
        "baseline_measurement_index",
        "baseline_measurement_key",
        "has_baseline",
        "id_",
        "index",
        "name",
        "sparse_average",
        "sparse_integral",
        "sparse_measurements",
    ],
}

LIGHTNING = """
trainer = Trainer(
    callbacks=[
        ModelPruning(
            pruning_fn="l1_unstructured",
            parameters_to_prune=parameters_to_prune,
            amount=0.01,
            use_global_unstructured=True,
        )
    ]
)
"""


@pytest.mark.parametrize("documented", SIGNATURES, ids=lambda text: text.partition("(")[0])
def test_arguments_are_the_documented_ones(documented):
    path, _, arguments = documented.partition("(")
    found = optim
    for name in path.split("."):
        found = getattr(found, name)
    namespace = {}
    exec(f"def f({arguments}: pass", namespace)  # our own text from above
    expected = inspect.signature(namespace["f"]).parameters
    here = [
        p
        for p in inspect.signature(found).parameters.values()
        if p.name != "self" and p.kind is not p.VAR_KEYWORD
    ]
    assert [p.name for p in here] == list(expected)
    assert [p.default for p in here] == [p.default for p in expected.values()]


@pytest.mark.parametrize("owner", PROPERTIES)
def test_properties_are_the_documented_ones(owner):
    for name in PROPERTIES[owner]:
        assert isinstance(inspect.getattr_static(getattr(optim, owner), name), property | optim.BaseProp)


def test_the_pruning_callback_of_the_documentation():
    pytest.importorskip("lightning")
    import logging
    import warnings

    from lightning.pytorch import LightningModule, Trainer
    from torch.utils.data import DataLoader, TensorDataset

    from sparsemod.train.lightning import ModelPruning

    class Model(LightningModule):
        def __init__(self):
            super().__init__()
            self.mlp_1 = nn.Linear(8, 32)
            self.mlp_2 = nn.Linear(32, 2)

        def training_step(self, batch, batch_idx):
            x, y = batch
            return nn.functional.cross_entropy(self.mlp_2(self.mlp_1(x).relu()), y)

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters())

    model = Model()
    parameters_to_prune = [(model.mlp_1, "weight"), (model.mlp_2, "weight")]

    def short_trainer(callbacks):
        quiet = {"enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
        return Trainer(callbacks=callbacks, max_epochs=3, accelerator="cpu", logger=False, **quiet)

    namespace = {
        "Trainer": short_trainer,
        "ModelPruning": ModelPruning,
        "parameters_to_prune": parameters_to_prune,
    }
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(LIGHTNING, namespace)
        data = TensorDataset(torch.randn(32, 8), torch.arange(32) % 2)
        namespace["trainer"].fit(model, DataLoader(data, batch_size=16))
    # 1 % of 320 weights is 3, of the 317 and the 314 that are left it is 3 again.
    assert sum(int((module.weight == 0).sum()) for module, _ in parameters_to_prune) == 9


def test_descriptions_results_and_recipes_keep_their_documented_files(tmp_path):
    path = str(tmp_path / "layers.json")
    optim.AnalyzedLayerDesc.save_descs([optim.AnalyzedLayerDesc("fc", "Linear", params=8)], path)
    assert [d.params for d in optim.AnalyzedLayerDesc.load_descs(path)] == [8]
    assert list(json.loads((tmp_path / "layers.json").read_text())) == ["descriptions"]
    analysis = optim.PruningLossSensitivityAnalysis()
    analysis.add_result(None, "fc.weight", 0, 0.0, 1.0, baseline=True)
    analysis.save_json(str(tmp_path / "loss.json"))
    assert analysis.load_json(str(tmp_path / "loss.json")).dict() == analysis.dict()
    manager = optim.ScheduledModifierManager([optim.EpochRangeModifier(start_epoch=0, end_epoch=3)])
    manager.save(str(tmp_path / "recipe.yaml"))
    assert optim.ScheduledModifierManager.from_yaml(str(tmp_path / "recipe.yaml")) == manager
