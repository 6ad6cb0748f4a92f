"""Learning from a teacher."""

import pytest
import torch
from torch import nn

from sparsemod.compress.modifiers_distillation import distillation_loss
from sparsemod.compress.recipe import DistillationModifier, Modifier, ScheduledModifierManager

STUDENT, TEACHER = torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([[3.0, 2.0, 1.0]])


class Fixed(nn.Module):
    """Returns what it was made with."""

    def __init__(self, outputs):
        super().__init__()
        self.outputs = outputs
        self.seen = []

    def forward(self, *inputs, **named):
        self.seen.append((inputs, named, self.training))
        return self.outputs


def mixed(modifier, teacher, loss=2.0, epoch=0.0, outputs=STUDENT, inputs=None, module=None, **options):
    modifier.initialize(module or nn.Identity(), distillation_teacher=teacher)
    return modifier.loss_update(
        torch.tensor(loss), module or nn.Identity(), None, epoch, 1,
        student_outputs=outputs, student_inputs=torch.zeros(1, 2) if inputs is None else inputs, **options,
    )  # fmt: skip


def test_divergence():
    assert float(distillation_loss(STUDENT, TEACHER, 2.0)) == pytest.approx(1.280627, abs=1e-6)


def test_divergence_is_averaged_over_rows():
    two = distillation_loss(STUDENT.repeat(2, 1), TEACHER.repeat(2, 1), 2.0)
    assert float(two) == pytest.approx(1.280627, abs=1e-6)
    assert float(distillation_loss(TEACHER, TEACHER, 3.0)) == 0.0


def test_mix():
    modifier = DistillationModifier(hardness=0.25)
    assert float(modifier.mixed(torch.tensor(2.0), torch.tensor(4.0))) == 2.5
    assert float(mixed(DistillationModifier(), Fixed(TEACHER))) == pytest.approx(1.0 + 1.280627 / 2, abs=1e-6)


@pytest.mark.parametrize(
    ("span", "epoch", "active"),
    [((-1, -1), 0, True), ((1, 3), 0.5, False), ((1, 3), 1, True), ((1, 3), 2.9, True), ((1, 3), 3, False)],
)
def test_only_within_its_schedule(span, epoch, active):
    assert (float(mixed(DistillationModifier(*span), Fixed(TEACHER), epoch=epoch)) != 2.0) is active


def test_off_by_default():
    modifier = DistillationModifier()
    modifier.initialize(nn.Identity())
    assert float(modifier.loss_update(torch.tensor(2.0), nn.Identity(), None, 0, 1)) == 2.0
    assert float(mixed(DistillationModifier(), "disable")) == 2.0


def test_teacher_learns_nothing_and_is_asked_in_eval_mode():
    teacher = Fixed(TEACHER).train()
    student = STUDENT.clone().requires_grad_()
    mixed(DistillationModifier(), teacher, outputs=student).backward()
    assert teacher.seen[0][2] is False
    assert teacher.training
    assert student.grad is not None


def test_self_distillation_learns_from_the_network_as_it_was():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 3), nn.Dropout(0.5))
    manager = ScheduledModifierManager([DistillationModifier(hardness=1.0)])
    optimizer = manager.modify(net, torch.optim.SGD(net.parameters(), lr=1.0), 1, distillation_teacher="self")
    x = torch.ones(4, 2)
    losses = []
    for _ in range(3):
        outputs = net[0](x)
        loss = optimizer.loss_update(outputs.square().mean(), student_inputs=x, student_outputs=outputs)
        losses.append(float(loss.detach()))
        with torch.no_grad():
            net[0].weight.mul_(2.0)
    assert losses[0] == pytest.approx(0.0, abs=1e-6)
    assert 1e-4 < losses[1] < losses[2]
    manager.finalize(net)


def test_several_outputs():
    pair = [TEACHER, STUDENT]
    both = mixed(DistillationModifier(hardness=1.0), Fixed(pair), outputs=[STUDENT, STUDENT])
    assert float(both) == pytest.approx(1.280627 / 2, abs=1e-6)
    first = mixed(
        DistillationModifier(hardness=1.0, distill_output_keys=[0]), Fixed(pair), outputs=[STUDENT, STUDENT]
    )
    assert float(first) == pytest.approx(1.280627, abs=1e-6)
    named = mixed(DistillationModifier(hardness=1.0), Fixed({"a": TEACHER}), outputs={"a": STUDENT})
    assert float(named) == pytest.approx(1.280627, abs=1e-6)


def test_inputs_of_the_teacher():
    x = torch.ones(1, 2)
    teacher = Fixed(TEACHER)
    mixed(DistillationModifier(), teacher, inputs={"a": x, "b": x})
    mixed(DistillationModifier(teacher_input_keys=["a"]), teacher, inputs={"a": x, "b": x})
    mixed(DistillationModifier(), teacher, inputs=[x, x])
    mixed(DistillationModifier(), teacher, teacher_inputs=2 * x)
    assert [(len(inputs), list(named)) for inputs, named, _ in teacher.seen] == [
        (0, ["a", "b"]), (0, ["a"]), (2, []), (1, []),
    ]  # fmt: skip
    assert torch.equal(teacher.seen[-1][0][0], 2 * x)


def test_refused():
    with pytest.raises(ValueError, match="hardness"):
        DistillationModifier(hardness=1.5)
    with pytest.raises(ValueError, match="temperature"):
        DistillationModifier(temperature=0)
    with pytest.raises(ValueError, match="distillation_teacher"):
        DistillationModifier().initialize(nn.Identity(), distillation_teacher="other")
    with pytest.raises(ValueError, match="student_outputs"):
        mixed(DistillationModifier(), Fixed(TEACHER), outputs=None)
    with pytest.raises(ValueError, match="returned"):
        mixed(DistillationModifier(), Fixed([TEACHER]))


def test_text_makes_the_same_modifier():
    modifier = DistillationModifier(1, 3, 0.25, 4.0, [0], ["a"])
    assert Modifier.load_obj(str(modifier)).identifier() == modifier.identifier()
